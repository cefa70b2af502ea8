"""`dvm-graph visualize`: a picture of what was fused."""

from __future__ import annotations

from pathlib import Path

import click

from dvm_graph.cli.request import Request, model_command, print_json, working


@click.command()
@model_command
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Picture to write: .html .svg .png .pdf or .dot. Default: MODEL's name with .html, here.",
)
def visualize(request: Request, output: Path | None) -> None:
    """Draw the fused subgraphs of MODEL."""
    target = output or Path(f"{request.path.stem}.html")
    model = request.optimize()
    with working(f"drawing {target.name}"):
        model.visualize(target)
    if request.as_json:
        print_json({"output": str(target), "bytes": target.stat().st_size})
    else:
        click.echo(f"written to {target}")
