"""`dvm-graph simulate`: what a model would take on a part that is not at hand."""

from __future__ import annotations

from pathlib import Path

import click

from dvm_graph.cli.dims import DimRanges, dim_option, single_dims
from dvm_graph.cli.request import (
    Request,
    model_command,
    npu_option,
    output_option,
    print_json,
    working,
)
from dvm_graph.npu.spec import Spec

_SPANS = 4000
"""Of a stage in a trace: the first tiles of each core."""


@click.command()
@model_command
@dim_option("Extent of a dim: batch=4. Default: what operators demand, or 2.")
@npu_option("A part by its name, or a spec file.", default="ascend910b2")
@click.option("--warm", is_flag=True, help="Begin with what a run before left in the shared cache.")
@click.option("--measured", is_flag=True, help="Take the time that this machine takes to compile.")
@output_option("--csv", text="Write a row for each stage, with CANN's column names.")
@output_option("--trace", text="Write a Chrome trace, a lane for each unit of each core.")
@output_option("--picture", text="Draw the timeline and the roofline (.svg).")
def simulate(
    request: Request,
    dims: DimRanges,
    npu: Spec,
    warm: bool,
    measured: bool,
    csv: Path | None,
    trace: Path | None,
    picture: Path | None,
) -> None:
    """Simulate MODEL on an NPU from shapes alone: time, units, bandwidth, stalls."""
    model = request.optimize()
    with working(f"simulating on {npu.name}"):
        found = model.simulate(
            single_dims(model, dims),
            npu=npu,
            cold_cache=not warm,
            measured=5 if measured else 0,
            trace=_SPANS if trace or picture else 0,
        )
    written = [
        (path, write)
        for path, write in (
            (csv, found.write_csv),
            (trace, found.write_trace),
            (picture, found.draw),
        )
        if path is not None
    ]
    for path, write in written:
        write(path)
    if request.as_json:
        print_json(found.to_dict())
        return
    click.echo(str(found))
    for path, _ in written:
        click.echo(f"written to {path}")
