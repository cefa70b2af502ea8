"""`dvm-graph run`: one run of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from dvm_graph.cli.arrays import Arrays, describe_result, load_arrays, save_arrays
from dvm_graph.cli.dims import DimRanges, input_options, single_dims
from dvm_graph.cli.request import Request, answers, model_command, output_option, print_json
from dvm_graph.cli.tables import print_table
from dvm_graph.feeds import random_feeds
from dvm_graph.model import Model


@click.command()
@model_command
@input_options("Extent of a dim of random inputs: batch=4. Default: what operators demand, or 2.")
@output_option("-o", "--output", text="Write results to this .npz.")
def run(
    request: Request, feeds: Path | None, dims: DimRanges, seed: int, output: Path | None
) -> None:
    """Run MODEL once and print what came out."""
    model = request.optimize()
    arrays = read_feeds(model, feeds, dims, seed)
    results = dict(zip((info.name for info in model.get_outputs()), model.run(arrays), strict=True))
    if output is not None:
        save_arrays(output, results)
    cost = model.statistics
    request.note(
        f"compiled {cost.kernels_compiled} kernels in {cost.compile_ns / 1e3:.1f} us, "
        f"ran {cost.run_ns / 1e6:.3f} ms, {cost.arena_bytes / 2**20:.1f} MiB of intermediate values"
    )
    facts = [describe_result(name, array) for name, array in results.items()]
    if request.as_json:
        print_json({"outputs": facts, "statistics": _cost(model)})
    else:
        columns = ("output", "dtype", "shape", "min", "max", "mean")
        print_table(answers(), columns, _rows(facts), texts=3)


def read_feeds(model: Model, path: Path | None, dims: DimRanges, seed: int) -> Arrays:
    """Inputs from a file, or random ones of the given extents."""
    return load_arrays(path) if path else random_feeds(model, single_dims(model, dims), seed)


def _cost(model: Model) -> dict[str, Any]:
    cost = model.statistics
    return {
        "run_ns": cost.run_ns,
        "compile_ns": cost.compile_ns,
        "kernels_compiled": cost.kernels_compiled,
        "kernels_launched": cost.kernels_launched,
        "fallbacks": cost.fallbacks,
        "arena_bytes": cost.arena_bytes,
    }


def _rows(facts: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [escape(fact["name"]), fact["dtype"], escape(str(fact["shape"]))]
        + [f"{fact[key]:.6g}" if key in fact else "" for key in ("min", "max", "mean")]
        for fact in facts
    ]
