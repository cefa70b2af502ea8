"""Addresses of operands, and the packed form of constant matrix operands.

An address says where an operand lies in terms of axis atoms. A constant B operand is packed into panels
once at load, if its address is that of dense matrices [batch, k, n] under some constant strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dvm_graph.cluster.axes import Atom
from dvm_graph.ir import Dim, DType, Value
from dvm_graph.kernels.plan import Panels
from dvm_graph.symbolic.dims import mul

_MAX_UNIFORM_CHECK = 4096
"""Elements of a constant that is looked through for being one number repeated."""


@dataclass(slots=True)
class Address:
    """Where an operand is read: a value, its buffer, an offset, and a stride for each atom."""

    source: Value
    buffer: int
    offset: Dim
    strides: dict[Atom, Dim]


@dataclass(frozen=True, slots=True)
class Extent:
    """Stands for the extent of an atom."""

    atom: Atom


@dataclass(frozen=True, slots=True)
class Packed:
    panels: Panels
    strides: dict[Atom, Dim]
    """Along the batch axes, as if the operand were a dense constant [batch..., rows, n]."""

    def with_transforms(self, slices: int) -> Packed:
        """Of weights in slices of 3 by 3 taps: their transforms lie behind them."""
        panels = replace(self.panels, transformed=slices)
        scale = panels.rows // self.panels.rows
        return Packed(panels, {atom: mul(stride, scale) for atom, stride in self.strides.items()})


def pack(
    address: Address,
    domain: Sequence[Atom],
    k: Atom,
    n: Atom,
    number_of: Callable[[Dim | Extent], int | None],
    number: Callable[[Value], int],
    bundles: bool,
) -> Packed | None:
    """The packed form of a constant B operand, in bundles if asked for; None: its address is not made of numbers alone, or
    its batch axes are not one.
    """
    strides: dict[Atom, int] = {}
    extents: dict[Atom, int] = {}
    for atom in dict.fromkeys((*address.strides, n, k)):
        stride, extent = number_of(address.strides.get(atom, 0)), number_of(Extent(atom))
        if stride is None or extent is None:
            return None
        strides[atom], extents[atom] = stride, extent
    offset = number_of(address.offset)
    if offset is None:
        return None
    batch = [atom for atom in domain if strides.get(atom) and atom not in (n, k)]
    step = batch_stride = strides[batch[-1]] if batch else 0
    count = 1
    dense: dict[Atom, Dim] = {}
    for atom in reversed(batch):
        if strides[atom] != step:
            return None
        dense[atom] = count * extents[k] * extents[n]
        count *= extents[atom]
        step *= extents[atom]
    panels = Panels(
        source=number(address.source),
        batch=count,
        k=extents[k],
        n=extents[n],
        strides=(batch_stride, strides[k], strides[n]),
        offset=offset,
        bundles=bundles,
    )
    return Packed(panels, dense)


def scalar_of(value: Value) -> Any | None:
    """The number that every element of a constant is, bit by bit: 0 and -0 are not the same."""
    data = value.data
    if data is None or not 0 < data.size <= _MAX_UNIFORM_CHECK:
        return None
    first = np.asarray(data).reshape(-1)[0]
    if data.tobytes() != first.tobytes() * data.size:
        return None
    return first.item() if value.dtype is not DType.BFLOAT16 else float(first)
