"""Command: `python -m models.export NAME... [--size tiny|base] [--dynamic batch,seq] [--output PATH]`.

Writes to `models/tiny/NAME.onnx` or `build/models/NAME.onnx` unless `--output` says otherwise. Needs torch.
"""

from __future__ import annotations

from pathlib import Path

import click

from models import base_path, export, tiny_path
from models.case import Size
from models.registry import FAMILIES, MODELS, ZOO


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*MODELS]))
@click.option("--zoo", is_flag=True, help="Every model of the zoo, beside those named.")
@click.option("--size", type=click.Choice([size.value for size in Size]), default="tiny")
@click.option(
    "--dynamic", default=None, help="Comma-separated dims to keep dynamic; all by default."
)
@click.option("--output", type=click.Path(path_type=Path), default=None, help="Only with one NAME.")
@click.option("--decode", is_flag=True, help="Export the single-token step with a key/value cache.")
@click.option("--skip-existing", is_flag=True, help="Leave files that are already there.")
def main(
    names: tuple[str, ...],
    zoo: bool,
    size: str,
    dynamic: str | None,
    output: Path | None,
    decode: bool,
    skip_existing: bool,
) -> None:
    """Export real models with random weights to ONNX."""
    names = (*names, *ZOO) if zoo else names
    if not names:
        raise click.UsageError(f"name a model, or --zoo; known: {', '.join(MODELS)}")
    if output is not None and len(names) > 1:
        raise click.UsageError("--output takes one model")
    dims = None if dynamic is None else tuple(name.strip() for name in dynamic.split(","))
    for name in names:
        target = f"{name}_decode" if decode else name
        if decode and target not in FAMILIES:
            raise click.UsageError(f"{name} has no --decode form")
        default = tiny_path(target) if size == "tiny" else base_path(target)
        path = output or default
        if skip_existing and path.exists():
            click.echo(f"{path} exists")
            continue
        export(target, Size(size), path, dims=dims)
        click.echo(f"{path} written")


if __name__ == "__main__":
    main()
