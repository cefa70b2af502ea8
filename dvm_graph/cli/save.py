"""`dvm-graph save`: a compiled model in a file, to start from without compiling."""

from __future__ import annotations

from pathlib import Path

import click

from dvm_graph.cli.request import Request, answers, model_command, output_option, print_json
from dvm_graph.errors import output_path


@click.command()
@model_command
@output_option("-o", "--output", text="The file to write; default: MODEL.dvm in this folder.")
def save(request: Request, output: Path | None) -> None:
    """Compile MODEL and save it, for run and bench to start from, and dvm_graph.load."""
    request.onnx_path()
    target = output or output_path(f"{request.path.stem}.dvm")
    request.optimize().save(target)
    size = target.stat().st_size
    if request.as_json:
        print_json({"file": str(target), "bytes": size})
    else:
        answers().print(f"wrote {target}, {size / 2**20:.1f} MiB", highlight=False, markup=False)
