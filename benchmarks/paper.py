"""The paper's evaluation on the simulated Ascend 910B2: `python -m benchmarks.paper`, or `make paper`.

The four operator datasets with the paper's own ranges of shapes, 60 random shapes each, over several seeds, from shapes
alone and with a cold L2; beside them the paper's figures and the ratios. Matmul and addmm are f16; LayerNorm and
if-else-add are f32, as the bandwidth that the paper's totals imply says. Running times are the simulator's, of one
execution alone: the host compiles (for as long as the part's spec says, so that they are the same on every machine),
launches, and the device works. Compile times are measured on this machine, at each shape, the least of three.

*Eager* is the same simulator with a launch for each operator at the vendor library's cost, nothing compiled, and our
kernels in the place of the library's: LayerNorm is one kernel there, too. So it says what fusion and launches save,
and nothing about whose kernels are better.

Below them, what each part of the design brings: changes one by one. The paper's models follow, without weights and from
shapes alone; it trains BERT and the language models, so the shapes are its own and the times are not. Last comes how many
instructions are simulated in a second.
"""

from __future__ import annotations

import functools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from onnx import parser

import dvm_graph
from benchmarks.operators import LLM_WEIGHTS
from benchmarks.weightless import weightless
from dvm_graph.npu.spec import Spec, find_spec
from dvm_graph.simulation.record import Stage

PART = "ascend910b2"
SAMPLES, SEEDS = 60, 20
_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
Dims = dict[str, int]


@dataclass(frozen=True, slots=True)
class Paper:
    """What the paper says of a dataset, times in ms."""

    running: float
    speedup: float
    compile_most: float
    compile_share: float


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    graph: str
    dtype: str
    sample: Callable[[np.random.Generator], Dims]
    eager_fused: bool
    """The vendor library has it as one kernel."""
    paper: Paper


def _product(generator: np.random.Generator) -> Dims:
    n, k = LLM_WEIGHTS[generator.integers(len(LLM_WEIGHTS))]
    return {"m": int(generator.integers(1, 8193)), "n": n, "k": k}


def _norm(generator: np.random.Generator) -> Dims:
    width = int(generator.choice((1024, 2048, 3072, 4096)))
    return {"b": int(generator.integers(1, 61)), "s": 8192, "h": width}


def _branches(generator: np.random.Generator) -> Dims:
    return {
        name: int(generator.integers(1, most + 1))
        for name, most in (("b", 256), ("s", 512), ("f", 8192))
    }


DATASETS = {
    data.name: data
    for data in (
        Dataset(
            "matmul",
            "g (float16[m,k] a, float16[k,n] b) => (float16[m,n] o) { o = MatMul(a, b) }",
            "f16",
            _product,
            True,
            Paper(123.26, 1.09, 0.11, 3.89e-3),
        ),
        Dataset(
            "LayerNorm",
            "g (float[b,s,h] x, float[h] w, float[h] c) => (float[b,s,h] o)"
            " { o = LayerNormalization<axis=-1>(x, w, c) }",
            "f32",
            _norm,
            True,
            Paper(271.14, 1.32, 0.10, 5.57e-3),
        ),
        Dataset(
            "if-else-add",  # the branch that was chosen, as the paper defines it anew for each run
            "g (float[b,s,f] x, float[b,s,f] y) => (float[b,s,f] o)"
            " { two = Constant<value_float=2.0>() t = Mul(x, two) o = Add(t, y) }",
            "f32",
            _branches,
            False,
            Paper(97.79, 1.47, 0.05, 2.17e-2),
        ),
        Dataset(
            "addmm",
            "g (float16[m,k] a, float16[k,n] b, float16[m,n] c) => (float16[m,n] o)"
            " { p = MatMul(a, b) o = Add(p, c) }",
            "f16",
            _product,
            False,
            Paper(127.12, 1.59, 0.11, 1.11e-2),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Point:
    """A shape: seconds."""

    dims: Dims
    running: float
    device: float
    compiling: float
    eager: float
    flops: float
    memory_bytes: float


@functools.cache
def _spec() -> Spec:
    return find_spec(PART)


@functools.cache
def _eager_spec() -> Spec:
    return _spec().changed("eager", host__launch=_spec()["host.library_launch"])


@functools.cache
def _model(name: str, fuse: bool) -> dvm_graph.Model:
    source = parser.parse_model(_HEAD + DATASETS[name].graph)
    return dvm_graph.optimize(source, fuse=fuse, stack=fuse)


def shapes(name: str, seed: int, samples: int) -> list[Dims]:
    generator = np.random.default_rng((seed, sorted(DATASETS).index(name)))
    return [DATASETS[name].sample(generator) for _ in range(samples)]


def points(name: str, seed: int, samples: int) -> list[Point]:
    """A seed's shapes of a dataset, simulated."""
    found = []
    for dims in shapes(name, seed, samples):
        ours = _model(name, True).simulate(dims, npu=_spec(), measured=3)
        eager = _model(name, DATASETS[name].eager_fused).simulate(
            dims, npu=_eager_spec(), compile=False
        )
        compiled = sum(launch.host.kernels for launch in ours.launches)
        found.append(
            Point(
                dims,
                ours.seconds - ours.compile_seconds + compiled * _spec()["host.compile"],
                ours.device_seconds,
                ours.compile_seconds,
                eager.seconds,
                sum(stage.flops for stage in ours.stages),
                sum(stage.bytes for stage in ours.stages),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Summary:
    """Of a dataset, over seeds; times in ms."""

    name: str
    running: float
    least: float
    most: float
    compile_total: float
    compile_most: float
    speedup: float
    speedup_least: float
    speedup_most: float
    rate: float
    """TFLOP/s of products, TB/s of others: work over time."""


def summarise(name: str, seeds: Sequence[Sequence[Point]]) -> Summary:
    totals = [sum(point.running for point in points) * 1e3 for points in seeds]
    everything = [point for points in seeds for point in points]
    ratios = [point.eager / point.running for point in everything]
    work = sum(point.flops or point.memory_bytes for point in everything)
    return Summary(
        name,
        statistics.mean(totals),
        min(totals),
        max(totals),
        statistics.mean(sum(point.compiling for point in points) * 1e3 for points in seeds),
        max(point.compiling for point in everything) * 1e3,
        statistics.mean(ratios),
        min(ratios),
        max(ratios),
        work / sum(point.running for point in everything) / 1e12,
    )


def table(summaries: Iterable[Summary]) -> str:
    """As the paper's tables of compile times and speed-ups, its figures beside ours."""
    lines = [
        "| dataset | dtype | total RT ms (least, most of a seed) | paper | ratio | achieved | max CT ms | paper "
        "| total CT / RT | paper | speed-up over eager (range) | paper |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for s in summaries:
        data, paper = DATASETS[s.name], DATASETS[s.name].paper
        unit = "TFLOP/s" if data.dtype == "f16" else "TB/s"
        lines.append(
            f"| {s.name} | {data.dtype} | {s.running:.2f} ({s.least:.1f}, {s.most:.1f}) | {paper.running} "
            f"| {s.running / paper.running:.2f} | {s.rate:.4g} {unit} | {s.compile_most:.3f} | {paper.compile_most} "
            f"| {s.compile_total / s.running:.2%} | {paper.compile_share:.2%} "
            f"| {s.speedup:.2f} ({s.speedup_least:.2f} - {s.speedup_most:.2f}) | {paper.speedup} |"
        )
    return "\n".join(lines)


# ---- ablations: what the paper argues and does not show


def _total(name: str, spec: Spec, fuse: bool, samples: int, **plan: bool) -> float:
    model = _model(name, fuse)
    return (
        sum(model.simulate(dims, npu=spec, **plan).seconds for dims in shapes(name, 0, samples))
        * 1e3
    )


def ablations(samples: int) -> str:
    """One seed: each change alone, and the time it costs."""
    spec = _spec()
    small = {"target__vector_tile_bytes": 8192, "target__local_bytes": 8192}
    middle = {"target__vector_tile_bytes": 32768, "target__local_bytes": 32768}
    one = spec.changed("one place", target__places=1)
    largest = spec.changed("largest", target__largest_tiles=1)
    cases: Mapping[str, tuple[Spec, bool]] = {
        "as it is": (spec, True),
        "fusion off": (spec, False),
        "double buffering off": (one, True),
        "tiles of one size instead of Algorithm 1's": (largest, True),
        "tiles of 32 KiB": (spec.changed("middle", **middle), True),
        "tiles of 8 KiB: decoding shows": (spec.changed("small", **small), True),
        "decoding free": (
            spec.changed("free", scalar__decode=0, scalar__sync=0, scalar__tile=0),
            True,
        ),
        "decoding four times as slow": (
            spec.changed("slow", scalar__decode=160, scalar__sync=40),
            True,
        ),
        "half of the L2": (spec.changed("l2", memory__l2=spec["memory.l2"] / 2), True),
    }
    names = tuple(DATASETS)
    lines = [f"| change | {' | '.join(names)} |", f"|{'---|' * (1 + len(names))}"]
    base = {name: _total(name, spec, True, samples) for name in names}
    for label, (part, fuse) in cases.items():
        times = {name: _total(name, part, fuse, samples) for name in names}
        cells = (f"{times[name]:.1f} ms ({times[name] / base[name]:.2f})" for name in names)
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def model_ablations(name: str, dims: Dims) -> str:
    """A whole model: stacking, and encoding beside execution."""
    model = _weightless(name)
    rows: Mapping[str, dict[str, bool]] = {
        "as it is": {},
        "each stage a launch of its own": {"temporal_stacking": False},
        "each kernel a launch of its own": {"spatial_stacking": False, "temporal_stacking": False},
        "the same, and the host waits for the device": {
            "spatial_stacking": False,
            "temporal_stacking": False,
            "overlap": False,
        },
        "programs known": {"compile": False},
    }
    lines = [f"| {name} {_text(dims)} | ms | launches |", "|---|---|---|"]
    for label, plan in rows.items():
        found = model.simulate(dims, npu=_spec(), **plan)
        lines.append(f"| {label} | {found.seconds * 1e3:.3f} | {len(found.launches)} |")
    whole = _spec().changed("whole", host__launch_kernels=1e6)
    found = model.simulate(dims, npu=whole)
    lines.append(
        f"| launches whole, whatever is compiled for them | {found.seconds * 1e3:.3f} | {len(found.launches)} |"
    )
    return "\n".join(lines)


# ---- models

MODELS: Mapping[str, Sequence[Dims]] = {
    "bert-base": [{"batch": batch, "seq": 128} for batch in (2, 4, 8, 16)],
    "mmoe": [{"batch": batch} for batch in (2048, 4096, 8192, 16384)],
    "qwen3-14b": [{"batch": batch, "seq": 4096} for batch in (1, 2)],
    "llama-3.1-8b": [{"batch": batch, "seq": 8192} for batch in (1, 2)],
}
"""At the paper's shapes, of the language models the first two."""


@functools.cache
def _weightless(name: str) -> dvm_graph.Model:
    return dvm_graph.optimize(weightless(name))


def _text(dims: Dims) -> str:
    return " ".join(f"{dim}={extent}" for dim, extent in dims.items())


def models() -> str:
    """The paper's models at its shapes, and what it takes to simulate them."""
    lines = [
        "| model | dims | ms | launches | waits for the host, ms | TFLOP/s | TB/s of memory | simulated in s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, shapes in MODELS.items():
        model = _weightless(name)
        for dims in shapes:
            begin = time.perf_counter()
            found = model.simulate(dims, npu=_spec())
            took = time.perf_counter() - begin
            flops = sum(stage.flops for stage in found.stages) / found.seconds / 1e12
            rate = sum(stage.memory_bytes for stage in found.stages) / found.seconds / 1e12
            lines.append(
                f"| {name} | {_text(dims)} | {found.seconds * 1e3:.4g} | {len(found.launches)} "
                f"| {found.exposed_seconds * 1e3:.3f} | {flops:.1f} | {rate:.2f} | {took:.2f} |"
            )
    return "\n".join(lines)


def speed(samples: int) -> str:
    """How fast the simulator is, on one core: kernels compiled and simulated, one seed."""
    lines = [
        "| dataset | s | instructions, M | a second, M | looked at one by one, M | of these a second, M |",
        f"|{'---|' * 6}",
    ]
    for name in DATASETS:
        begin = time.perf_counter()
        stages: list[Stage] = []
        for dims in shapes(name, 0, samples):
            stages += _model(name, True).simulate(dims, npu=_spec()).stages
        took = time.perf_counter() - begin
        every = sum(stage.instructions for stage in stages) / 1e6
        single = sum(stage.simulated for stage in stages) / 1e6
        lines.append(
            f"| {name} | {took:.2f} | {every:.4g} | {every / took:.4g} | {single:.4g} | {single / took:.3g} |"
        )
    return "\n".join(lines)


def plot(name: str, found: Sequence[Point], path: Path) -> None:
    """Speed-up over eager at every shape, as the paper's scatter plots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.add_subplot()
    ratios = [point.eager / point.running for point in found]
    work = [(point.flops or point.memory_bytes) for point in found]
    axes.scatter(work, ratios, s=6, color="tab:red", label="simulated")
    axes.axhline(statistics.mean(ratios), color="tab:red", linestyle="--", linewidth=1)
    speedup = DATASETS[name].paper.speedup
    axes.axhline(
        speedup, color="tab:gray", linestyle=":", linewidth=1, label=f"the paper's mean, {speedup}"
    )
    axes.set_xscale("log")
    axes.set_xlabel("FLOP" if found[0].flops else "bytes read and written")
    axes.set_ylabel("speed-up over eager")
    axes.set_title(name)
    axes.legend(fontsize=7)
    figure.savefig(path)


def _work(task: tuple[str, int, int]) -> tuple[str, int, list[Point]]:
    name, seed, samples = task
    return name, seed, points(name, seed, samples)


@click.command()
@click.option("--seeds", default=SEEDS, show_default=True)
@click.option(
    "--samples", default=SAMPLES, show_default=True, help="Shapes of a dataset, for each seed."
)
@click.option("--jobs", default=2, show_default=True)
@click.option("--datasets", default=",".join(DATASETS), show_default=True)
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("build/paper"), show_default=True
)
def main(seeds: int, samples: int, jobs: int, datasets: str, output: Path) -> None:
    """The paper's datasets on the simulated 910B2: tables to stdout, tables and plots to a folder."""
    begin = time.perf_counter()
    names = datasets.split(",")
    tasks = [(name, seed, samples) for name in names for seed in range(seeds)]
    found: dict[str, dict[int, list[Point]]] = {name: {} for name in names}
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for name, seed, made in pool.imap_unordered(_work, tasks):
            found[name][seed] = made
    by_seed = {name: [found[name][seed] for seed in range(seeds)] for name in names}
    text = [
        f"{samples} shapes x {seeds} seeds, simulated {PART}, L2 cold\n",
        table(summarise(name, by_seed[name]) for name in names),
        "\n\nChanges one by one, a quarter of the shapes of one seed\n",
        ablations(max(samples // 4, 1)),
    ]
    output.mkdir(parents=True, exist_ok=True)
    for name in names:
        plot(name, by_seed[name][0], output / f"{name}.svg")
    for name in ("bert-base", "mmoe"):
        text += ["\n", model_ablations(name, MODELS[name][0])]
    text += ["\n\nModels without weights, from shapes alone\n", models()]
    text += ["\n\nInstructions that are simulated, on one core\n", speed(samples)]
    text.append(f"\n{time.perf_counter() - begin:.0f} s")
    page = "\n".join(text)
    (output / "tables.md").write_text(page, encoding="utf-8")
    click.echo(page)


if __name__ == "__main__":
    main()
