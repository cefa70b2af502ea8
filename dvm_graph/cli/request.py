"""What all commands share: the model, the options it is compiled with, and how answers are printed."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import track

from dvm_graph.errors import InputError, output_path
from dvm_graph.model import Model, open_model
from dvm_graph.npu.spec import Spec, find_spec
from dvm_graph.options import PRECISIONS, Options
from dvm_graph.saving import is_saved

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Request:
    """A command's model and common options."""

    path: Path
    options: Options
    as_json: bool
    verbose: bool

    def optimize(self) -> Model:
        """The compiled model, or the saved one, with a spinner on a terminal meanwhile."""
        begin = time.perf_counter()
        with working(f"optimising {self.path.name}"):
            model = open_model(self.path, self.options)
        self.note(f"optimised {self.path.name} in {time.perf_counter() - begin:.2f} s")
        return model

    def onnx_path(self) -> Path:
        """The model's path, for what a saved model does not hold.

        Raises:
            InputError: it is a saved model.
        """
        if is_saved(self.path):
            raise InputError(f"{str(self.path)!r} is a saved model: this takes the ONNX model")
        return self.path

    def note(self, text: str) -> None:
        """Something to say on stderr under --verbose."""
        if self.verbose:
            errors().print(text, style="dim", highlight=False, markup=False)


def model_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds MODEL and the common options to a command, which gets them as one `Request`."""

    @click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
    @click.option("--strict", is_flag=True, help="Refuse models that need vendor operators.")
    @click.option("--cores", type=click.IntRange(1), help="AI cores of the host device.")
    @click.option(
        "--precision",
        type=click.Choice(PRECISIONS),
        default="f32",
        help="What the f32 operands of matrix products are rounded to (default f32: nothing).",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
    @click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is done and how long.")
    @functools.wraps(function)
    def command(
        model: Path,
        strict: bool,
        cores: int | None,
        precision: str,
        as_json: bool,
        verbose: bool,
        **rest: Any,
    ) -> Any:
        options = Options(strict=strict, cores=cores, precision=precision)
        return function(Request(model, options, as_json, verbose), **rest)

    return command


def output_option(*names: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A file to write, looked at before the work whose result goes there."""

    def look(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
        return None if path is None else output_path(path)

    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(*names, type=kind, callback=look, help=text)


def npu_option(
    text: str, default: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--npu`: a part that comes with the package, or a spec file of one; the command gets its `Spec`."""

    def look(_context: click.Context, _option: click.Parameter, part: str | None) -> Spec | None:
        return None if part is None else find_spec(part)

    return click.option(
        "--npu", default=default, show_default=default is not None, callback=look, help=text
    )


def print_json(data: Any) -> None:
    """JSON for programs: no colours, no line folding."""
    click.echo(json.dumps(data, indent=2))


def errors() -> Console:
    """The console for everything that is not the answer."""
    return Console(stderr=True)


def answers() -> Console:
    """The console for answers; lines are as long as they are where it is no terminal."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _UNBOUNDED)


_UNBOUNDED = 1 << 16


def each(items: Sequence[_Item], text: str) -> Iterator[_Item]:
    """Items that are worked off one by one, with a bar on stderr (a spinner for a single one), on a
    terminal only.
    """
    console = errors()
    if len(items) == 1:
        with working(text):
            yield items[0]
    elif console.is_terminal:
        yield from track(items, text, console=console, transient=True)
    else:
        yield from items


@contextmanager
def working(text: str) -> Iterator[None]:
    """A spinner on stderr, on a terminal only."""
    console = errors()
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        yield
