"""`dvm-graph report`: what was fused, and why."""

from __future__ import annotations

import click

from dvm_graph.cli.request import Request, model_command, print_json


@click.command()
@model_command
@click.option(
    "--why",
    nargs=2,
    metavar="A B",
    help="Say why two ONNX nodes (or kernels) are, or are not, in one kernel.",
)
@click.option("--explain", is_flag=True, help="Say what the words of the report mean.")
def report(request: Request, why: tuple[str, str] | None, explain: bool) -> None:
    """Print the kernels of MODEL, the verdicts with their reasons, and the vendor operators."""
    result = request.optimize().report()
    if why is None:
        if request.as_json:
            print_json(result.to_dict())
        else:
            click.echo(str(result))
            if explain:
                click.echo("\n".join(["", "words:", *(f"  {line}" for line in result.legend())]))
        return
    answer = result.why(*why)
    if request.as_json:
        print_json({"first": why[0], "second": why[1], "answer": answer})
    else:
        click.echo(answer)
