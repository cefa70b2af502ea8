"""The basic operators: what decomposition ends in, one row each.

Element-wise, reduction and matrix operators have the names of the kernel plan's operators
(`kernels/ops.def`; a test holds the two together). Operands of element-wise operators broadcast as
numpy's do (right-aligned). Types: all operands of a `MAP` operator have one dtype unless the row
says otherwise; compares and tests give bool.

    kind      meaning
    MAP       one result element per point of the broadcast shape
    REDUCE    attrs `axes: tuple[int, ...]` (non-negative, sorted); reduced axes stay with extent 1
    MATRIX    matmul: A[..., m, k] @ B[..., k, n], both of rank >= 2, batch axes broadcast; of floats of one
              dtype, or of uint8 and int8 with sums in int32, which wrap
    VIEW      same elements, other arrangement: never computes
    GATHER    reads by index
    WINDOW    reads channels-last images x[n, h, w, c] by a moving window; attrs `kernel`, `strides`,
              `dilations`, `pads` (at the top and left) and `size` (of the result) are pairs of dims;
              taps outside the image are left out
    UNPACK    makes of constants that are packed otherwise what only a matmul can read, as its right operand
    SOURCE    no tensor operands
    CALL      a step between kernels: one ONNX node left to the vendor library (`vendor`), an If, Loop or
              Scan whose bodies are compiled (`control`, laid out as `ir.control` says), or an ONNX node that
              the host carries out (`host`; `decompose/host.py`, `runtime/host_ops`)
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from dvm_graph.ir.dtypes import DType

MAX_AXES = 10
"""Of the loops of a kernel: what a grid (kMaxGridRank of vm/program.h) and a tile iterate over. A
product also contracts one that is none of its result."""


class Kind(enum.Enum):
    MAP = "map"
    REDUCE = "reduce"
    MATRIX = "matrix"
    VIEW = "view"
    GATHER = "gather"
    WINDOW = "window"
    UNPACK = "unpack"
    SOURCE = "source"
    CALL = "call"

    __hash__ = object.__hash__  # as DType's


class Result(enum.Enum):
    """The dtype of an operator's result."""

    SAME = "that of the (last) operand"
    BOOL = "bool"
    ATTR = "attribute `dtype`"
    SUM = "int32 of uint8 and int8, else that of the operands"


ANY = frozenset(DType)
FLOATS = frozenset(dtype for dtype in DType if dtype.is_float)
INTEGERS = frozenset(dtype for dtype in DType if dtype.is_integer)
NUMBERS = FLOATS | INTEGERS
BITS = INTEGERS | {DType.BOOL}
BYTES = frozenset({DType.UINT8, DType.INT8})
NARROW = BYTES | {DType.INT16, DType.UINT16}
"""Integers that float32 holds, and so the differences of two."""


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    name: str
    kind: Kind
    arity: int
    """Number of operands; -1: any."""
    result: Result = Result.SAME
    attrs: tuple[str, ...] = ()
    takes: frozenset[DType] = ANY
    """The dtypes of its (last) operand: those that an instruction computes with, by the register they are in
    (vm/isa.def; a test holds the two together).
    """
    optional: tuple[str, ...] = ()
    """Attributes that it may have besides."""


_WINDOW = ("kernel", "strides", "dilations", "pads", "size")


def _rows() -> list[OperatorInfo]:
    of_floats = (
        "sqrt rsqrt reciprocal exp log log1p sin cos tan asin acos atan sinh cosh asinh acosh atanh erf "
        "tanh sigmoid floor ceil round trunc"
    )
    taken = {
        NUMBERS: "abs neg sign",
        FLOATS: of_floats,
        frozenset({DType.BOOL}): "logical_not",
        INTEGERS: "bitwise_not",
    }
    rows = [
        OperatorInfo(n, Kind.MAP, 1, takes=t) for t, names in taken.items() for n in names.split()
    ]
    tests = ("isnan", "isinf", "isfinite")
    rows += [OperatorInfo(name, Kind.MAP, 1, Result.BOOL, takes=FLOATS) for name in tests]
    taken = {
        NUMBERS: "add sub mul div mod fmod pow min max",
        BITS: "bitwise_and bitwise_or bitwise_xor",
        INTEGERS: "shift_left shift_right",
    }
    rows += [
        OperatorInfo(n, Kind.MAP, 2, takes=t) for t, names in taken.items() for n in names.split()
    ]
    rows += [
        OperatorInfo(n, Kind.MAP, 2, Result.BOOL) for n in ["eq", "ne", "lt", "le", "gt", "ge"]
    ]
    rows += [
        # operands: condition (bool), then, else
        OperatorInfo("select", Kind.MAP, 3),
        OperatorInfo("cast", Kind.MAP, 1, Result.ATTR, ("dtype",)),
        # of bytes, unsigned ones in order: the numbers in `table`, 256 bytes
        OperatorInfo("lookup", Kind.MAP, 1, Result.ATTR, ("table", "dtype"), BYTES),
        # int64 index: negatives count from `limit`; outside [0, limit) is an error at run time
        OperatorInfo("check_index", Kind.MAP, 1, attrs=("limit",), takes=frozenset({DType.INT64})),
    ]
    rows += [
        OperatorInfo(f"reduce_{name}", Kind.REDUCE, 1, attrs=("axes",), takes=takes)
        for name, takes in (("sum", NUMBERS), ("prod", NUMBERS), ("max", ANY), ("min", ANY))
    ]
    rows += [
        # with `rounded_blocks`, of an operand B that `unpack_blocks` makes: A is rounded to bytes, with a scale for each so
        # many steps of k (ir/numeric.py)
        OperatorInfo("matmul", Kind.MATRIX, 2, Result.SUM, optional=("rounded_blocks",)),
        # attrs are dims (int or symbolic); element counts match
        OperatorInfo("reshape", Kind.VIEW, 1, attrs=("shape",)),
        OperatorInfo("transpose", Kind.VIEW, 1, attrs=("perm",)),
        OperatorInfo("broadcast_to", Kind.VIEW, 1, attrs=("shape",)),
        # out[i...] = x[start + i * step ...]; one entry per axis; sizes = result extents
        OperatorInfo("slice", Kind.VIEW, 1, attrs=("starts", "steps", "sizes")),
        # what absorb_views composes the four above to: result shape, strides in elements (one per
        # result axis, 0 = broadcast) and offset into the operand's contiguous buffer
        OperatorInfo("view", Kind.VIEW, 1, attrs=("shape", "strides", "offset")),
        OperatorInfo("concat", Kind.VIEW, -1, attrs=("axis",)),
        # operands: x, int64 index; result shape = x[:axis] + index + x[axis+1:]; indices are
        # wrapped and checked
        OperatorInfo("gather", Kind.GATHER, 2, attrs=("axis",)),
        # reductions over windows: [n, h, w, c] to [n, *size, c]
        OperatorInfo("pool_max", Kind.WINDOW, 1, attrs=_WINDOW),
        OperatorInfo("pool_sum", Kind.WINDOW, 1, attrs=_WINDOW),
        # each of the `groups` of channels convolved by itself; operands: x, weights[taps * c / groups, outputs], rows in the
        # order of patches, outputs group by group: [n, h, w, c] to [n, *size, outputs]. Of bytes, a channel a group and an
        # output of it: taps outside of the image are `outside`
        OperatorInfo("depthwise", Kind.WINDOW, 2, Result.SUM, (*_WINDOW, "groups", "outside")),
        # the elements of each window, row-major (tap row, tap column, channel), of volumes by tap slice first, 0 outside:
        # [n, (d,) h, w, c] to [n, *size, taps * c]; with several `groups` of channels to
        # [groups, n, *size, taps * c / groups]. Only a matmul can read it, as its left operand
        OperatorInfo("patches", Kind.WINDOW, 1, attrs=(*_WINDOW, "groups")),
        # f32[k, n] = (level - zero) * scale: levels of a few bits, the lowest first, in uint8[n, blocks, bytes];
        # operands: levels, zeros f32[n, blocks] where they are not the middle of the levels, scales f32[n, blocks]
        OperatorInfo("unpack_blocks", Kind.UNPACK, -1, attrs=("bits", "k")),
        # int64: out[i...] = start + i[axis] * step (start, step are dims)
        OperatorInfo("iota", Kind.SOURCE, 0, attrs=("shape", "axis", "start", "step")),
        # int64 tensor holding dims: attrs `elements` (flat, row-major) and `shape`
        OperatorInfo("dims", Kind.SOURCE, 0, attrs=("elements", "shape")),
        OperatorInfo("vendor", Kind.CALL, -1, Result.ATTR),
        OperatorInfo("control", Kind.CALL, -1, Result.ATTR),
        OperatorInfo("host", Kind.CALL, -1, Result.ATTR, ("op", "arguments")),
    ]
    return rows


OPERATORS: dict[str, OperatorInfo] = {row.name: row for row in _rows()}

RELAYOUTS = frozenset({"reshape", "transpose", "broadcast_to"})
"""View operators that only rename the axes of what they read."""
STRIDED = frozenset({"view", "slice"})
"""View operators that read memory at an offset or with strides."""
FUNCTIONS = frozenset(
    (
        *("exp", "log", "log1p", "pow", "erf", "sigmoid", "sin", "cos", "tan", "asin", "acos"),
        *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    )
)
"""Element-wise operators that units work out by many instructions; others take about as long as a load."""
FOR_PRODUCTS = frozenset({"patches", "unpack_blocks"})
"""Operators whose results are nothing without the matmul that reads them."""


def sum_of_products(a: DType, b: DType) -> DType | None:
    """The dtype in which products of elements are summed; None: there are no such products."""
    if (a, b) == (DType.UINT8, DType.INT8):
        return DType.INT32
    return a if a is b else None
