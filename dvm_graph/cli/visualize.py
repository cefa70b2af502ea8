"""`dvm-graph visualize`: a picture of what was fused."""

from __future__ import annotations

from pathlib import Path

import click

from dvm_graph.cli.dims import DimRanges, input_options
from dvm_graph.cli.request import Request, model_command, output_option, print_json, working
from dvm_graph.cli.run import read_feeds
from dvm_graph.errors import InputError
from dvm_graph.report import picture_path


@click.command()
@model_command
@input_options(
    "Extent of a dim of the run that is profiled: batch=4. Default: what operators demand, or 2."
)
@click.option("--profile", is_flag=True, help="Profile a run, and colour by the time it takes.")
@output_option(
    "-o",
    "--output",
    text="Picture to write: .html .svg .png .pdf or .dot. Default: MODEL's name with .html, here.",
)
def visualize(
    request: Request,
    feeds: Path | None,
    dims: DimRanges,
    seed: int,
    profile: bool,
    output: Path | None,
) -> None:
    """Draw the fused subgraphs of MODEL."""
    if (feeds or dims) and not profile:
        raise InputError("--feeds and --dim are for the run that --profile takes")
    target = picture_path(output or Path(f"{request.path.stem}.html"))
    model = request.optimize()
    times = None
    if profile:
        arrays = read_feeds(model, feeds, dims, seed)
        with working("profiling"):
            times = model.profile(arrays)
    with working(f"drawing {target.name}"):
        model.visualize(target, profile=times)
    if request.as_json:
        print_json({"output": str(target), "bytes": target.stat().st_size})
    else:
        click.echo(f"written to {target}")
