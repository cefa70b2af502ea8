"""Axes as users name them."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from dvm_graph.errors import InputError


class OutOfRange(InputError, IndexError):  # noqa: N818 - as Python's
    """An index or axis beyond the end; Python's own loops and callers of the standard know it as an IndexError."""


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        InputError: it is none, or out of range.
    """
    try:
        number = operator.index(axis)
    except TypeError as error:
        raise InputError(f"{axis!r:.50} is no axis") from error
    if not -rank <= number < rank:
        raise OutOfRange(f"axis {number} is out of range for rank {rank}")
    return number % rank


def axes_of(axes: int | Sequence[int] | None, rank: int) -> list[int]:
    """Axes in the order given; None: all.

    Raises:
        InputError: one is out of range or named twice.
    """
    if axes is None:
        return list(range(rank))
    listed = axes if isinstance(axes, tuple | list) else (axes,)
    found = [axis_of(axis, rank) for axis in listed]
    if len(set(found)) < len(found):
        raise InputError(f"axes {axes} name one twice")
    return found
