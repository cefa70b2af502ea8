"""The `dvm-graph` command: its subcommands, and what an error looks like.

Exit codes: 0 done; 1 the results of two engines differ, or a check found something; 2 the request or
the model is bad, with one message on stderr; 130 Ctrl-C. What is not a `DvmError` is a defect and keeps
its traceback.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from dvm_graph.cli.interruption import STATUS, ended_by_interrupts
from dvm_graph.errors import DvmError

_MODULES = {
    "run": "run",
    "compare": "compare",
    "check": "check",
    "bench": "bench",
    "simulate": "simulate",
    "report": "report",
    "visualize": "visualize",
    "dump": "dump",
    "disasm": "disasm",
    "save": "save",
    "machine": "machine",
    "calibrate": "machine",
}
"""Where each command is; a run of a saved model needs none of what the others import."""


class _Commands(UserDict[str, Any]):
    """Loads a command when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        command = getattr(import_module(f"dvm_graph.cli.{self.data[name]}"), name)
        assert isinstance(command, click.Command)
        return command


class _Failure(click.ClickException):
    exit_code = 2


class _Interrupted(click.ClickException):
    exit_code = STATUS


@contextmanager
def _messages() -> Iterator[None]:
    try:
        with ended_by_interrupts():
            yield
    except KeyboardInterrupt as error:
        raise _Interrupted("interrupted") from error
    except DvmError as error:
        raise _Failure(f"{type(error).__name__}: {error}") from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise _Failure(f"{where}{error.strerror or error}") from error


class _Group(click.Group):
    """Turns errors of dvm_graph and Ctrl-C into messages."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _messages():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _messages():
            return super().invoke(ctx)


@click.group(
    cls=_Group,
    commands=_Commands(_MODULES),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="dvm-graph")
def main() -> None:
    """Compile ONNX models with dynamic shapes, run them, and see what was fused."""
