"""`dvm-graph dump`: what a stage of the compiler makes of a model."""

from __future__ import annotations

from pathlib import Path

import click

from dvm_graph.cli.request import Request, model_command, output_option, print_json, working
from dvm_graph.pipeline import STAGES, stage_text


@click.command()
@model_command
@click.option(
    "--stop-after",
    "stage",
    metavar="STAGE",
    type=click.Choice(STAGES),
    default=STAGES[-1],
    show_default=True,
    help=f"One of {', '.join(STAGES)}.",
)
@output_option("-o", "--output", text="Write to this file.")
def dump(request: Request, stage: str, output: Path | None) -> None:
    """Print the text form of MODEL as it leaves a stage of the compiler."""
    with working(f"compiling {request.path.name}"):
        text = stage_text(request.onnx_path(), request.options, stage)
    if request.as_json:
        print_json({"stage": stage, "text": text})
    elif output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        click.echo(f"written to {output}")
