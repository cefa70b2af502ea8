"""The `dvm-graph` command: its subcommands, and what an error looks like.

Exit codes: 0 done; 1 the results of two engines differ, or a check found something; 2 the request or
the model is bad, with one message on stderr; 130 Ctrl-C. What is not a `DvmError` is a defect and keeps
its traceback.
"""

from __future__ import annotations

from typing import Any

import click

from dvm_graph.cli.bench import bench
from dvm_graph.cli.check import check
from dvm_graph.cli.compare import compare
from dvm_graph.cli.disasm import disasm
from dvm_graph.cli.dump import dump
from dvm_graph.cli.interruption import STATUS, ended_by_interrupts
from dvm_graph.cli.machine import calibrate, machine
from dvm_graph.cli.report import report
from dvm_graph.cli.run import run
from dvm_graph.cli.save import save
from dvm_graph.cli.simulate import simulate
from dvm_graph.cli.visualize import visualize
from dvm_graph.errors import DvmError


class _Failure(click.ClickException):
    exit_code = 2


class _Interrupted(click.ClickException):
    exit_code = STATUS


class _Group(click.Group):
    """Turns errors of dvm_graph and Ctrl-C into messages."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with ended_by_interrupts():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Interrupted("interrupted") from error
        except DvmError as error:
            raise _Failure(f"{type(error).__name__}: {error}") from error
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise _Failure(f"{where}{error.strerror or error}") from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dvm-graph")
def main() -> None:
    """Compile ONNX models with dynamic shapes, run them, and see what was fused."""


for _command in (
    run,
    compare,
    check,
    bench,
    simulate,
    report,
    visualize,
    dump,
    disasm,
    save,
    machine,
    calibrate,
):
    main.add_command(_command)
