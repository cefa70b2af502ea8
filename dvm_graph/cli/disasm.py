"""`dvm-graph disasm`: the bytecode of a model's kernels at given extents."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from dvm_graph.cli.dims import DimRanges, dim_option, single_dims
from dvm_graph.cli.request import Request, model_command, npu_option, output_option, print_json
from dvm_graph.errors import InputError
from dvm_graph.npu.spec import Spec


@click.command()
@model_command
@dim_option("Extent of a dim: batch=4. Default: 2.")
@click.option("--kernel", help="Only kernels whose name has this text in it.")
@click.option("--steps", is_flag=True, help="Tile code behind each step of the compiler, too.")
@npu_option("For a part by its name, or a spec file, instead of this machine.")
@output_option("-o", "--output", text="Write to this file.")
def disasm(
    request: Request,
    dims: DimRanges,
    kernel: str | None,
    steps: bool,
    npu: Spec | None,
    output: Path | None,
) -> None:
    """Print the bytecode that the kernels of MODEL get for some extents."""
    model = request.optimize()
    listings = model.listings(single_dims(model, dims), steps=steps, npu=npu)
    chosen = [listing for listing in listings if kernel is None or kernel in listing.name]
    if not chosen:
        names = ", ".join(listing.name for listing in listings[:8])
        raise InputError(f"no kernel has {kernel!r} in its name; there are {names}, ...")
    if request.as_json:
        print_json([asdict(listing) for listing in chosen])
        return
    text = "".join(map(str, chosen))
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text)
        click.echo(f"written to {output}")
