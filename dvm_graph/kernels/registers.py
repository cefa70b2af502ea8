"""Rules of register dtypes: which operators may leave the range of a narrow storage dtype.

Tiles of int8, int16, uint8, uint16 and uint32 live in wider registers, and only loads and stores
convert. Where an operator may leave the range of the storage dtype, its result is wrapped at once by a
`narrow`, so that what follows sees what it would have read from memory. float16 and bfloat16 stay wide
between operators; an explicit cast rounds, and memory does, but for what an ONNX operator computes on its way
(`value_table`).
"""

from __future__ import annotations

from dvm_graph.ir import DType, Value

_NARROW_INTEGERS = frozenset({DType.INT8, DType.INT16, DType.UINT8, DType.UINT16, DType.UINT32})
_LEAVES_RANGE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "abs",
        "pow",
        "shift_left",
        "bitwise_not",
        "reduce_sum",
        "reduce_prod",
    ]
)
_RANGE = {
    DType.BOOL: (0, 1),
    DType.INT8: (-(2**7), 2**7 - 1),
    DType.INT16: (-(2**15), 2**15 - 1),
    DType.INT32: (-(2**31), 2**31 - 1),
    DType.INT64: (-(2**63), 2**63 - 1),
    DType.UINT8: (0, 2**8 - 1),
    DType.UINT16: (0, 2**16 - 1),
    DType.UINT32: (0, 2**32 - 1),
    DType.UINT64: (0, 2**64 - 1),
}


def needs_narrow(op: str, dtype: DType) -> bool:
    """The result of this operator has to be wrapped to its storage dtype."""
    return dtype in _NARROW_INTEGERS and op in _LEAVES_RANGE


def extreme_of_nothing(op: str, dtype: DType) -> int | None:
    """What a maximum or minimum over no elements is, where it is not that of the register dtype."""
    if dtype not in _NARROW_INTEGERS or op not in ("reduce_max", "reduce_min"):
        return None
    low, high = _RANGE[dtype]
    return low if op == "reduce_max" else high


def cast_needs_narrow(source: DType, target: DType) -> bool:
    """A cast to `target` may leave values that it cannot hold in the register."""
    if target in (DType.FLOAT16, DType.BFLOAT16):
        return source is not target and source is not DType.BOOL
    if target not in _NARROW_INTEGERS:
        return False
    if source not in _RANGE:
        return True
    low, high = _RANGE[source]
    return low < _RANGE[target][0] or high > _RANGE[target][1]


def is_saturated(value: Value, target: DType) -> bool:
    """Whether an integer ends as what is quantised does: within the bounds of its type, NaN at the lower one.

    A float below all integers of a type becomes the least of them, where the type is as wide as registers; narrower ones wrap
    what they are cast from, and so do all what are integers.
    """
    low, high = _RANGE.get(target, (1, 0))
    least, value = _bounded(value, "max")
    cast = value.made_by("cast")
    if least is None or cast is None or value.dtype not in (DType.INT32, DType.INT64):
        return False
    source = cast.required(0)
    if not source.dtype.is_float:
        return False
    greatest, _ = _bounded(source, "min")
    return greatest is not None and low <= least <= greatest <= high


def _bounded(value: Value, op: str) -> tuple[float | None, Value]:
    """The one number that `op` holds a value to, and the value; or None and the value as it is."""
    node = value.producer
    if node is None or node.op != op:
        return None, value
    bound = node.required(1).data
    if bound is None or bound.size != 1:
        return None, value
    return float(bound.reshape(())), node.required(0)
