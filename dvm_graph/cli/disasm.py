"""`dvm-graph disasm`: the bytecode of a model's kernels at given extents."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dvm_graph.cli.dims import DimRanges, dim_option, single_dims
from dvm_graph.cli.request import Request, model_command, npu_option, output_option, print_json
from dvm_graph.errors import InputError
from dvm_graph.npu.spec import Spec

if TYPE_CHECKING:
    from dvm_graph.simulation import Launch


@click.command()
@model_command
@dim_option("Extent of a dim: batch=4. Default: what operators demand, or 2.")
@click.option("--kernel", help="Only kernels whose name has this text in it.")
@click.option("--steps", is_flag=True, help="Tile code behind each step of the compiler, too.")
@npu_option("For a part by its name, or a spec file, instead of this machine.")
@click.option("--tiles", is_flag=True, help="With --npu: which core runs which tiles, too.")
@output_option("-o", "--output", text="Write to this file.")
def disasm(
    request: Request,
    dims: DimRanges,
    kernel: str | None,
    steps: bool,
    npu: Spec | None,
    tiles: bool,
    output: Path | None,
) -> None:
    """Print the bytecode that the kernels of MODEL get for some extents."""
    if tiles and npu is None:
        raise InputError("--tiles is of a part, which --npu names")
    model = request.optimize()
    at = single_dims(model, dims)
    listings = model.listings(at, steps=steps, npu=npu)
    chosen = [listing for listing in listings if kernel is None or kernel in listing.name]
    if not chosen:
        names = ", ".join(listing.name for listing in listings[:8])
        raise InputError(f"no kernel has {kernel!r} in its name; there are {names}, ...")
    launches: list[Launch] = []
    if tiles and npu is not None:
        shown = {listing.name for listing in chosen}
        launches = [
            launch
            for launch in model.simulate(at, npu=npu).launches
            if any(not shown.isdisjoint(stage.kernels) for stage in launch.stages)
        ]
    if request.as_json:
        kernels = [asdict(listing) for listing in chosen]
        tables = list(map(_plain, launches))
        print_json({"kernels": kernels, "launches": tables} if tiles else kernels)
        return
    text = "".join(map(str, chosen)) + "".join(map(_core_tables, launches))
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text)
        click.echo(f"written to {output}")


def _plain(launch: Launch) -> dict[str, Any]:
    return {
        "programs": launch.programs,
        "program_bytes": launch.program_bytes,
        "stages": [
            {"stage": stage.name, "cores": [asdict(core) for core in stage.core_tiles]}
            for stage in launch.stages
        ],
    }


def _core_tables(launch: Launch) -> str:
    lines = [f"launch of one program of {launch.program_bytes:,} bytes, {launch.programs} in it"]
    for stage in launch.stages:
        lines += [f"  stage {stage.name}", *(f"    {core}" for core in stage.core_tiles)]
    return "".join(f"{line}\n" for line in lines)
