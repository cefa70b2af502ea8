"""`python -m benchmarks PART [OPTIONS]`; `python -m benchmarks all --quick` is a short look at everything."""

from __future__ import annotations

import math
import os
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import branches, memory_bound, models, operators, stream
from benchmarks.cpus import this_machine
from benchmarks.engines import DEFAULT, ENGINES
from benchmarks.first import first_measured
from benchmarks.measure import run_workload
from benchmarks.page import chapters, write_page
from benchmarks.paired import lowest, of_workload, workloads
from benchmarks.process import Setting, Worker, missing
from benchmarks.results import Results, read_results
from benchmarks.rows import Row, write_rows
from benchmarks.turns import CEILINGS
from benchmarks.workload import Workload, narrowed
from models import base_path

_QUICK_MODELS = ("bert", "llama_decode", "resnet")
_QUICK_ZOO = ("mobilenet_v3", "yolo", "conformer", "resnet_int8")
_COMPILED_MODELS = ("bert", "gpt2", "mmoe", "llama_decode", "resnet")
"""Shown to Inductor, which compiles a model for a minute; every model if it is asked for by name."""
_RECOMPILED_MODELS = ("bert", "mmoe")
"""Shown to it at one static shape: the paper's table of compile times has them."""
_PACKAGES = ("onnxruntime", "openvino", "torch", "transformers", "numpy")
_PAGES = Path(__file__).resolve().parent.parent / "docs" / "performance"
_CONSOLE = Console()

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Request:
    """The options that all parts share."""

    engines: tuple[str, ...]
    """Empty: all that compute in f32."""
    setting: Setting
    repeats: int
    quick: bool
    seed: int
    static_shapes: int
    """Negative: the part's own number."""
    output: Path

    @property
    def rounds(self) -> int:
        return min(2, self.repeats) if self.quick else self.repeats

    def present(self, candidates: Sequence[str] = tuple(ENGINES)) -> list[str]:
        """The engines that take part; those left out are named with the reason."""
        chosen = [name for name in self.engines or DEFAULT if name in candidates]
        reasons = {name: missing(name, self.setting) for name in chosen}
        for name, reason in reasons.items():
            if reason:
                _CONSOLE.print(f"[yellow]{name} is left out: {reason}")
        return [name for name, reason in reasons.items() if not reason]


def _shared_options(function: F) -> F:
    options = [
        click.option("--engines", default="", help=f"Of {','.join(ENGINES)}; default: all f32."),
        click.option("--threads", default=len(os.sched_getaffinity(0)), show_default=True),
        click.option("--repeats", default=5, show_default=True, help="Timed rounds per point."),
        click.option("--quick", is_flag=True, help="Fewer rounds, points and models."),
        click.option("--seed", default=0, show_default=True),
        click.option(
            "--static-shapes",
            default=-1,
            help="Shapes per workload that the recompiling engine is shown; by default few or none.",
        ),
        click.option(
            "--python",
            "interpreters",
            multiple=True,
            metavar="ENGINE=PATH",
            help="Interpreter of an environment for one engine; may be repeated.",
        ),
        click.option(
            "--output",
            type=click.Path(path_type=Path),
            default=Path("build/bench"),
            show_default=True,
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _request(
    engines: str,
    threads: int,
    repeats: int,
    quick: bool,
    seed: int,
    static_shapes: int,
    interpreters: Sequence[str],
    output: Path,
) -> Request:
    chosen = tuple(name for name in engines.split(",") if name)
    if unknown := [name for name in chosen if name not in ENGINES]:
        raise click.UsageError(f"unknown engine {unknown[0]!r}; known: {', '.join(ENGINES)}")
    if repeats < 1:
        raise click.UsageError("--repeats is at least 1")
    if threads < 1:
        raise click.UsageError("--threads is at least 1")
    cpu, _ = this_machine()
    there = _read(output).cpu  # asked for while there is time to choose another folder
    if there not in ("", cpu):
        message = f"{output} holds results of {there}, this is {cpu}: give another --output"
        raise click.UsageError(message)
    setting = Setting(threads, dict(_interpreter(text) for text in interpreters))
    return Request(chosen, setting, repeats, quick, seed, static_shapes, output)


def _interpreter(text: str) -> tuple[str, str]:
    """Engine and path of `ENGINE=PATH`."""
    engine, _, path = text.partition("=")
    if engine not in ENGINES or not os.access(path, os.X_OK):
        raise click.UsageError(f"--python {text}: has to be ENGINE=PATH of an interpreter")
    return engine, path


@click.group()
def main() -> None:
    """Compares dvm_graph with other engines; writes CSV, Markdown and plots."""


@main.command("ceilings")
@_shared_options
def ceilings_command(**options: Any) -> None:
    """The machine's FMA rate and memory traffic, measured."""
    request = _request(**options)
    with Worker(CEILINGS, request.setting) as meter:
        found = meter.ceilings()
    _CONSOLE.print(
        f"{request.setting.threads} threads: {found.fma_gflops:.1f} GFLOP/s f32 FMA, "
        f"copy {found.copy_gbs:.1f} GB/s (read plus written), read {found.read_gbs:.1f} GB/s"
    )


@main.command("operators")
@_shared_options
@click.option("--datasets", default=",".join(operators.DATASETS), show_default=True)
@click.option("--count", default=operators.COUNT, show_default=True, help="Shapes of a dataset.")
def operators_command(datasets: str, count: int, **options: Any) -> None:
    """The paper's operator and subgraph datasets."""
    _operators(_request(**options), _chosen(datasets, operators.DATASETS), count)


@main.command("memory-bound")
@_shared_options
@click.option("--datasets", default=",".join(memory_bound.OPERATORS), show_default=True)
def memory_bound_command(datasets: str, **options: Any) -> None:
    """Memory-bound operators at awkward extents."""
    _memory_bound(_request(**options), _chosen(datasets, memory_bound.OPERATORS))


@main.command("branches")
@_shared_options
@click.option("--datasets", default=",".join(branches.DATASETS), show_default=True)
@click.option("--count", default=branches.COUNT, show_default=True, help="Shapes of a dataset.")
def branches_command(datasets: str, count: int, **options: Any) -> None:
    """Branches between element-wise operators, at random shapes and conditions."""
    _branches(_request(**options), _chosen(datasets, branches.DATASETS), count)


@main.command("models")
@_shared_options
@click.option("--models", "names", default="", help=f"Of {','.join(models.GRIDS)}; default: all.")
def models_command(names: str, **options: Any) -> None:
    """Whole models over a grid of dims."""
    _models(_request(**options), names)


@main.command("zoo")
@_shared_options
@click.option("--models", "names", default="", help=f"Of {','.join(models.ZOO)}; default: all.")
def zoo_command(names: str, **options: Any) -> None:
    """Architectures of many kinds, each over a few shapes."""
    _zoo(_request(**options), names)


@main.command("stream")
@_shared_options
@click.option("--stream-model", default="bert", show_default=True)
@click.option("--shapes", default=2000, show_default=True, help="Length of the stream.")
@click.option("--max-batch", default=stream.MAX_BATCH, show_default=True)
@click.option("--min-seq", default=stream.SEQUENCES[0], show_default=True)
@click.option("--max-seq", default=stream.SEQUENCES[1], show_default=True)
def stream_command(
    stream_model: str, shapes: int, max_batch: int, min_seq: int, max_seq: int, **options: Any
) -> None:
    """Random (batch, seq) shapes on an encoder, each new."""
    if not 1 <= min_seq <= max_seq:
        raise click.UsageError("--min-seq is at least 1 and at most --max-seq")
    _stream(_request(**options), stream_model, shapes, max_batch, (min_seq, max_seq))


@main.command("again")
@_shared_options
@click.option("--below", default=0.8, show_default=True, help="Speed-up over any engine.")
def again_command(below: float, **options: Any) -> None:
    """The points in OUTPUT at which dvm_graph was under a ratio of any engine, anew."""
    _again(_request(**options), below)


@main.command("all")
@_shared_options
def all_command(**options: Any) -> None:
    """Every part."""
    request = _request(**options)
    _operators(request, list(operators.DATASETS), operators.COUNT)
    _memory_bound(request, list(memory_bound.OPERATORS))
    _branches(request, list(branches.DATASETS), branches.COUNT)
    _models(request, "")
    _zoo(request, "")
    _stream(request, "bert", 2000, stream.MAX_BATCH, stream.SEQUENCES)


@main.command()
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("build/bench"), show_default=True
)
def document(output: Path) -> None:
    """Takes the results in OUTPUT into the page of their CPU in docs/performance."""
    results = _read(output)
    if not results.cpu:
        raise click.UsageError(f"{output} does not say what CPU its results are of: run again")
    first = first_measured(results, _PAGES / results.cpu / "first.csv")
    _CONSOLE.print(f"written: {write_page(results, _PAGES, first)} and its plots")


def _chosen(names: str, known: Any) -> list[str]:
    chosen = names.split(",")
    if unknown := [name for name in chosen if name not in known]:
        raise click.UsageError(f"unknown name {unknown[0]!r}; known: {', '.join(known)}")
    return chosen


def _operators(request: Request, datasets: Sequence[str], count: int) -> None:
    graphs = request.output / "graphs"
    count = min(count, 10) if request.quick else count
    chosen = [operators.workload(name, request.seed, count, graphs) for name in datasets]
    if "matmul" in datasets:
        chosen.append(operators.constant_weight_workload(request.seed, graphs))
    _run(request, "operators", chosen)


def _memory_bound(request: Request, datasets: Sequence[str]) -> None:
    graphs = request.output / "graphs"
    make = memory_bound.workload
    chosen = [make(name, request.seed, request.quick, graphs) for name in datasets]
    _run(request, "memory-bound", chosen)


def _branches(request: Request, datasets: Sequence[str], count: int) -> None:
    request = replace(request, engines=request.engines or branches.ENGINES)
    graphs = request.output / "graphs"
    count = min(count, 10) if request.quick else count
    make = branches.workload
    chosen = [make(name, request.seed, count, graphs) for name in datasets]
    _run(request, "branches", chosen)


def _models(request: Request, names: str) -> None:
    default = _QUICK_MODELS if request.quick else tuple(models.GRIDS)
    chosen = _chosen(names, models.GRIDS) if names else list(default)
    _require_exports(chosen)
    _run(request, "models", [models.workload(name, request.seed, request.quick) for name in chosen])


def _zoo(request: Request, names: str) -> None:
    default = _QUICK_ZOO if request.quick else tuple(models.ZOO)
    chosen = _chosen(names, models.ZOO) if names else list(default)
    _require_exports(chosen)
    _run(request, "zoo", [models.workload(name, request.seed, request.quick) for name in chosen])


def _again(request: Request, below: float) -> None:
    chosen: list[Workload] = []
    for part, rows in _read(request.output).parts.items():
        slow = [pair.subject for pair in lowest(rows).values() if pair.speedup < below]
        for name in workloads(slow):
            whole = _whole(request, part, name, 1 + max(row.index for row in rows))
            try:
                chosen.append(narrowed(whole, [row.point for row in of_workload(slow, name)]))
            except KeyError as error:
                message = f"{name} has no point {error}: is --seed that of the first run?"
                raise click.UsageError(message) from error
    if not chosen:
        _CONSOLE.print(f"no point in {request.output} is under {below}")
        return
    # Inductor compiles long for each static shape: only where it is asked for.
    _run(replace(request, static_shapes=max(0, request.static_shapes)), "again", chosen)


def _whole(request: Request, part: str, name: str, count: int) -> Workload:
    graphs = request.output / "graphs"
    if part in ("models", "zoo"):
        _require_exports([name])
        return models.workload(name, request.seed, quick=False)
    if part == "memory-bound":
        return memory_bound.workload(name, request.seed, False, graphs)
    if part == "branches":
        return branches.workload(name, request.seed, count, graphs)
    if name in operators.DATASETS:
        return operators.workload(name, request.seed, count, graphs)
    return operators.constant_weight_workload(request.seed, graphs)


def _limited(request: Request, workload: Workload) -> Workload:
    """What the engines that compile for long are shown, so that a run ends; more where they are asked for by name."""
    part, name = workload.part, workload.name
    static, dynamic = 0, len(workload.points)
    if part == "operators":
        static = 1 if request.quick else 3
    elif request.quick:
        dynamic = 0
    elif part == "models":
        static = int(name in _RECOMPILED_MODELS)
        dynamic = dynamic if name in _COMPILED_MODELS else 0
    if "inductor_dynamic" in request.engines:
        dynamic = len(workload.points)
    if "inductor_static" in request.engines:
        static = max(1, static)
    if request.static_shapes >= 0:
        static = request.static_shapes
    mindspore = len(workload.points) if name in operators.DATASETS else 0
    shown = {"inductor_static": static, "inductor_dynamic": dynamic, "mindspore": mindspore}
    return replace(workload, shown=shown)


def _require_exports(names: Sequence[str]) -> None:
    if absent := [name for name in names if not base_path(name).exists()]:
        raise click.UsageError(
            f"no base export of {', '.join(absent)}: run `make models-base models-zoo`"
        )


def _run(request: Request, part: str, chosen: Sequence[Workload]) -> None:
    engines = request.present()
    rows: list[Row] = []
    with _progress() as progress:
        total = sum(len(workload.points) for workload in chosen)
        task = progress.add_task(part, total=total, what="")
        for workload in chosen:
            progress.update(task, what=f"{workload.name}: loading")
            rows += run_workload(
                _limited(request, workload),
                engines,
                request.rounds,
                request.setting,
                request.seed,
                lambda what: progress.update(task, advance=1, what=what),
            )
            write_rows(Row, rows, request.output / f"{part}.csv")
    _finish(request, part)


def _stream(
    request: Request, model: str, shapes: int, max_batch: int, seq: tuple[int, int]
) -> None:
    _require_exports([model])
    shapes = min(shapes, 60) if request.quick else shapes
    engines = request.present(stream.ENGINES)
    if request.quick and not request.engines:
        engines = [name for name in engines if name != "inductor_dynamic"]
    drawn = stream.sample(request.seed, shapes, max_batch, seq)
    with _progress() as progress:
        turns = math.ceil(len(drawn) / stream.TURN)
        task = progress.add_task("stream", total=turns, what="loading")
        rows, memories = stream.run_stream(
            model,
            drawn,
            engines,
            request.setting,
            request.seed,
            lambda what: progress.update(task, advance=1, what=what),
        )
    write_rows(stream.StreamRow, rows, request.output / "stream.csv")
    write_rows(stream.StreamMemory, memories, request.output / "stream_memory.csv")
    _finish(request, "stream")


def _progress() -> Progress:
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("{task.fields[what]}"), console=Console(stderr=True))


def _read(folder: Path) -> Results:
    try:
        return read_results(folder)
    except ValueError as error:
        raise click.UsageError(f"{error}, or give another --output") from error


def _finish(request: Request, part: str) -> None:
    """Prints the part's tables and writes everything that is made of the CSV files."""
    (request.output / "cpu").write_text(f"{this_machine()[0]}\n", encoding="utf-8")
    (request.output / f"{part}.run").write_text(_described(request), encoding="utf-8")
    results = _read(request.output)
    click.echo(chapters(results).get(part, ""))  # wider than most terminals: as it is
    _CONSOLE.print(f"written: {write_page(results, request.output)}, its plots and CSV files")


def _described(request: Request) -> str:
    """The command, the machine and the versions, as a list."""
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    reasons = {name: missing(name, request.setting) for name in ENGINES}
    absent = [f"{name} ({reason})" for name, reason in reasons.items() if reason]
    return "\n".join(
        (
            f"* `{_command()}`",
            f"* machine: {' of family '.join(reversed(this_machine()))}, {request.setting.threads} threads",
            f"* {', '.join(versions)}, Python {platform.python_version()}",
            f"* left out: {', '.join(absent) or 'no engine'}",
        )
    )


def _command() -> str:
    """As it was given, without the paths of this machine."""
    words = ["PATH" if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return f"python -m benchmarks {shlex.join(words)}"


if __name__ == "__main__":
    main()
