"""Old forms of operators, rewritten to the newest form while importing.

ONNX turned many attributes into inputs over the years (the axes of Squeeze, the bounds of Clip). The
table below lists each such change; `normalize` moves the attribute to a constant operand, so that
decompositions see one form whatever the opset.

Invariants: operands are only ever appended, so the operands that a node's `source` names stay a
prefix of `Node.inputs`, and a vendor operator can still run the source at the model's opset.
`Node.version` stays that of the model.

Not rewritten, because the meaning differs and not just the form: Softmax, LogSoftmax and Hardmax
before 13 (they flatten to two axes; look at `Node.version`), Resize 10, RoiAlign 10, DFT 17, whose axis has another default,
BatchNormalization 7 with `spatial=0`, and what only the vendor library runs (Scan 8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dvm_graph.ir import Array, DType

_Convert = Callable[[Any, DType], Array]


@dataclass(frozen=True, slots=True)
class MovedAttribute:
    """An attribute that became the operand at `position`."""

    attribute: str
    position: int
    convert: _Convert


@dataclass(frozen=True, slots=True)
class Change:
    """The form of an operator from `since` on; `moved` in order of position."""

    since: int
    moved: tuple[MovedAttribute, ...] = ()
    renamed: str = ""


@dataclass(frozen=True, slots=True)
class NewForm:
    """What `normalize` made of a node. A None operand is an omitted one."""

    op: str
    attrs: dict[str, Any]
    appended: tuple[Array | None, ...]


def _integers(value: Any, _: DType) -> Array:
    return np.asarray(value, np.int64)


def _one_integer(value: Any, _: DType) -> Array:
    return np.asarray([value], np.int64)


def _of_operand_type(value: Any, dtype: DType) -> Array:
    """Of operands that are no floats, as these operators' have to be, no type holds every value."""
    return np.asarray(value, dtype.numpy if dtype.is_float else np.float32)


def _float(value: Any, _: DType) -> Array:
    return np.asarray(value, np.float32)


_AXES = (MovedAttribute("axes", 1, _integers),)

CHANGES: dict[str, Change] = {
    "Clip": Change(
        11,
        (MovedAttribute("min", 1, _of_operand_type), MovedAttribute("max", 2, _of_operand_type)),
    ),
    "Dropout": Change(12, (MovedAttribute("ratio", 1, _float),)),
    "Pad": Change(
        11, (MovedAttribute("pads", 1, _integers), MovedAttribute("value", 2, _of_operand_type))
    ),
    "Scatter": Change(11, renamed="ScatterElements"),
    "Slice": Change(
        10,
        (
            MovedAttribute("starts", 1, _integers),
            MovedAttribute("ends", 2, _integers),
            MovedAttribute("axes", 3, _integers),
        ),
    ),
    "Split": Change(13, (MovedAttribute("split", 1, _integers),)),
    "Squeeze": Change(13, _AXES),
    "TopK": Change(10, (MovedAttribute("k", 1, _one_integer),)),
    "Unsqueeze": Change(13, _AXES),
    "Upsample": Change(9, (MovedAttribute("scales", 1, _float),)),
    "ReduceSum": Change(13, _AXES),
    **{
        f"Reduce{name}": Change(18, _AXES)
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
    },
}
"""By operator of the default domain."""

_FORM_SINCE = {change.renamed or op: change.since for op, change in CHANGES.items()}
"""By operator as `normalize` leaves it."""

CHANGED_MEANING = frozenset(
    {"BatchNormalization", "Hardmax", "LogSoftmax", "Resize", "Scan", "Softmax", "Split"}
)
"""Operators whose meaning, not just form, depends on the opset."""


def normalize(
    op: str, version: int, dtype: DType, operands: int, attrs: dict[str, Any]
) -> NewForm | None:
    """The newest form of an operator of the default domain, or None when it has that already.

    `dtype` is that of the first operand, `operands` the number of operands that the node has.
    """
    change = CHANGES.get(op)
    if op == "BatchNormalization" and version < 9:
        return _batch_normalization(attrs)
    if change is None or version >= change.since:
        return None
    remaining = dict(attrs)
    appended: list[Array | None] = []
    for moved in change.moved:
        value = remaining.pop(moved.attribute, None)
        array = None if value is None else moved.convert(value, dtype)
        appended += [None] * (moved.position - operands - len(appended))
        appended.append(array)
    while appended and appended[-1] is None:
        appended.pop()
    return NewForm(change.renamed or op, remaining, tuple(appended))


def form_version(op: str, domain: str, version: int) -> int:
    """The opset version whose schema describes the form that `normalize` leaves a node in."""
    return version if domain else max(version, _FORM_SINCE.get(op, version))


def _batch_normalization(attrs: dict[str, Any]) -> NewForm | None:
    if not attrs.get("spatial", 1):
        return None
    remaining = {name: value for name, value in attrs.items() if name != "spatial"}
    return NewForm("BatchNormalization", remaining, ())
