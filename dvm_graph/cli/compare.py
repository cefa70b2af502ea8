"""`dvm-graph compare`: a model against onnxruntime, over one or many shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from dvm_graph.cli.arrays import load_arrays
from dvm_graph.cli.dims import DimRanges, all_dims, input_options, text_of
from dvm_graph.cli.request import Request, answers, each, model_command, print_json, working
from dvm_graph.cli.tables import print_table
from dvm_graph.comparison import Comparison, OutputComparison, compare_model, reference_session
from dvm_graph.model import Model


@click.command()
@model_command
@input_options(
    "Extents of a dim, repeatable: batch=1,2,4, seq=1:9:2 (ends included), seq=1:128:x2. "
    "All combinations are compared. Default: what operators demand, or 2."
)
def compare(request: Request, feeds: Path | None, dims: DimRanges, seed: int) -> None:
    """Compare MODEL with onnxruntime; exit code 1 where results differ.

    Times are those of single runs after a warm-up: an indication, no benchmark.
    """
    request.onnx_path()
    model = request.optimize()
    if feeds is None:
        results = _sweep(request, model, dims, seed)
    else:
        arrays = load_arrays(feeds)
        with working("comparing"):
            results = [compare_model(model, request.onnx_path(), arrays, {}, seed)]
    if request.as_json:
        print_json([_plain(result) for result in results])
    else:
        _print(answers(), results)
    if not all(result.passed for result in results):
        click.get_current_context().exit(1)


def _sweep(request: Request, model: Model, dims: DimRanges, seed: int) -> list[Comparison]:
    points = all_dims(model, dims)
    with working("loading onnxruntime's session"):
        session = reference_session(request.onnx_path(), threads=model.cores)
    return [
        compare_model(model, request.onnx_path(), None, extents, seed, session)
        for extents in each(points, "comparing")
    ]


def _print(console: Console, results: list[Comparison]) -> None:
    columns = (
        *("dims", "output", "shape", "equal"),
        *("max error", "relative", "dvm_graph", "onnxruntime", "ratio"),
    )
    rows = []
    for result in results:
        for number, output in enumerate(result.outputs):
            first = number == 0
            rows.append(
                (
                    text_of(result.dims) if first else "",
                    escape(output.name),
                    escape(str(list(output.shape))),
                    _verdict(output),
                    f"{output.max_absolute_error:.2e}",
                    f"{output.max_relative_error:.2e}",
                    f"{result.seconds * 1e3:.3f} ms" if first else "",
                    f"{result.onnxruntime_seconds * 1e3:.3f} ms" if first else "",
                    f"{result.onnxruntime_seconds / result.seconds:.2f}x" if first else "",
                )
            )
    print_table(console, columns, rows, texts=4)
    failed = sum(not result.passed for result in results)
    shapes = f"{len(results)} shape{'s' if len(results) > 1 else ''}"
    if results[0].precision != "f32":
        shapes = f"products of {results[0].precision}, {shapes}"
    console.print(f"{shapes}, {failed} different" if failed else f"{shapes}, all equal")


def _verdict(output: OutputComparison) -> str:
    """In a word, and how far both are from float64 where that was asked."""
    word = "yes" if output.passed else "[bold red]NO[/]"
    if output.float64_errors is None:
        return word
    ours, theirs = output.float64_errors
    return f"{word} (float64: {ours:.1e}, onnxruntime {theirs:.1e})"


def _plain(result: Comparison) -> dict[str, Any]:
    return {
        "dims": dict(result.dims),
        "precision": result.precision,
        "passed": result.passed,
        "seconds": result.seconds,
        "onnxruntime_seconds": result.onnxruntime_seconds,
        "outputs": [
            {
                "name": output.name,
                "shape": list(output.shape),
                "dtype": output.dtype,
                "max_absolute_error": _finite(output.max_absolute_error),
                "max_relative_error": _finite(output.max_relative_error),
                "passed": output.passed,
                "float64_errors": output.float64_errors
                and [_finite(error) for error in output.float64_errors],
            }
            for output in result.outputs
        ],
    }


def _finite(error: float) -> float | None:
    """JSON has no infinity: None says that shapes or dtypes differ."""
    return error if error < float("inf") else None
