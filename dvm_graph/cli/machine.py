"""`dvm-graph machine` and `dvm-graph calibrate`: the model of this machine, and measuring it."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

from dvm_graph.cli.request import print_json
from dvm_graph.cli.tables import print_table
from dvm_graph.npu.machine import Machine, calibrate_machine, fields, this_machine


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def machine(as_json: bool) -> None:
    """Print what the compiler takes this machine for, and where each number comes from."""
    _print(this_machine(), as_json)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def calibrate(as_json: bool) -> None:
    """Measure this machine for a few seconds, and keep the numbers for this user and CPU.

    Programs that start later compile for them. Nothing else should run meanwhile.
    """
    measured, path = calibrate_machine()
    _print(measured, as_json)
    if not as_json:
        click.echo(f"kept in {path}")


def _print(machine: Machine, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "name": machine.name,
                "numbers": {
                    name: {
                        "value": number.value,
                        "unit": fields()[name].unit,
                        "source": number.source,
                    }
                    for name, number in machine.numbers.items()
                },
            }
        )
        return
    rows = [
        (
            name,
            f"{machine.numbers[name].value:.4g}",
            known.unit,
            known.meaning,
            escape(machine.numbers[name].source),
        )
        for name, known in fields().items()
    ]
    print_table(
        Console(highlight=False),
        ("number", "value", "unit", "meaning", "source"),
        rows,
        title=machine.name,
    )
