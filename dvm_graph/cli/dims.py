"""Extents given on the command line: `--dim batch=4`, `--dim batch=1,2,4`, `--dim seq=1:128:x2`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dvm_graph.cli.request import errors
from dvm_graph.errors import InputError
from dvm_graph.feeds import dim_names
from dvm_graph.model import Model

_MAX_EXTENTS = 10_000

DimRanges = tuple[tuple[str, tuple[int, ...]], ...]


class _DimRange(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic in new clicks
    """NAME=EXTENTS; extents are a comma-separated list of numbers and ranges, ends included.

    `a:b` counts up, `a:b:s` in steps of s, `a:b:xf` multiplies by f.
    """

    name = "name=extents"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[int, ...]]:
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        try:
            extents = tuple(
                itertools.islice(
                    (extent for part in text.split(",") for extent in _expand(part)),
                    _MAX_EXTENTS + 1,
                )
            )
        except ValueError:
            extents = ()
        if not (name and equals and extents) or min(extents) < 0:
            self.fail(f"{value!r} is not like batch=4, batch=1,2,4, seq=1:9:2 or seq=1:128:x2")
        if len(extents) > _MAX_EXTENTS:
            self.fail(f"{value!r} stands for more than {_MAX_EXTENTS} extents")
        return name, extents


def _expand(part: str) -> Iterable[int]:
    first, *rest = part.split(":")
    if not rest:
        return (int(first),)
    last, step = int(rest[0]), rest[1] if len(rest) > 1 else "1"
    if len(rest) > 2:
        raise ValueError(part)
    if step.startswith("x"):
        return _multiply(int(first), last, int(step[1:]))
    if int(step) < 1:
        raise ValueError(part)
    return range(int(first), last + 1, int(step))


def _multiply(first: int, last: int, factor: int) -> Iterable[int]:
    if first < 1 or factor < 2:
        raise ValueError(f"{first}:{last}:x{factor}")
    return itertools.takewhile(lambda n: n <= last, (first * factor**i for i in itertools.count()))


def dim_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The repeatable --dim option."""
    return click.option("--dim", "dims", type=_DimRange(), multiple=True, help=text)


def input_options(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Where a command's inputs come from: --feeds or --dim, with `text` as its help, and --seed."""
    options = (
        click.option(
            "--feeds",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Inputs from a .npz file, an array for each. Default: random ones.",
        ),
        dim_option(text),
        click.option("--seed", default=0, show_default=True, help="Of the random inputs."),
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(*args: Any, feeds: Path | None, dims: DimRanges, **rest: Any) -> Any:
            if feeds is not None and dims:
                raise InputError(
                    "--feeds and --dim exclude each other: the arrays have their shapes"
                )
            return function(*args, feeds=feeds, dims=dims, **rest)

        return functools.reduce(lambda f, add: add(f), reversed(options), command)

    return decorate


def single_dims(model: Model, given: DimRanges) -> dict[str, int]:
    """Extents for a command that takes one of each; the rest get the default.

    Raises:
        click.UsageError: more than one extent, or a dim that the model does not have.
    """
    for name, extents in given:
        if len(extents) != 1:
            raise click.UsageError(f"--dim {name}: this command takes one extent")
    return next(iter(all_dims(model, given)))


def all_dims(model: Model, given: DimRanges) -> list[dict[str, int]]:
    """Every combination of the extents; the last dim varies fastest.

    Raises:
        click.UsageError: a dim that the model does not have, or one given twice.
    """
    names = dim_names(model.get_inputs())
    ranges: dict[str, Sequence[int]] = dict(given)
    if len(ranges) < len(given):
        raise click.UsageError("a dim is given twice; several extents are batch=1,2,4")
    unknown = [name for name in ranges if name not in names]
    if unknown:
        known = f"its dims are {', '.join(names)}" if names else "all its dims are fixed"
        raise click.UsageError(f"the model has no dim {unknown[0]!r}; {known}")
    ranges = {name: ranges[name] for name in names if name in ranges}
    points = [
        model.default_dims(dict(zip(ranges, extents, strict=True)))
        for extents in itertools.product(*ranges.values())
    ]
    _tell_defaults(points, [name for name in names if name not in ranges])
    return points


def text_of(dims: Mapping[str, int]) -> str:
    """As one would write it: batch=4 seq=77."""
    return " ".join(f"{name}={extent}" for name, extent in dims.items())


def _tell_defaults(points: Sequence[Mapping[str, int]], names: Sequence[str]) -> None:
    """Of dims that follow those that are given, each point tells."""
    if names:
        same = {name: points[0][name] for name in names if len({p[name] for p in points}) == 1}
        text = f"note: no --dim for {', '.join(names)}; taking {text_of(same) or 'what follows'}"
        errors().print(text, style="dim", highlight=False, markup=False)
