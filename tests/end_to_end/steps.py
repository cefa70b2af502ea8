"""What the models of `tests.end_to_end.pairs` are made of: operators and views, which read values whose dims are known.

A `Step` appends operators to a `Sketch`, a model on its way, and gives the value that they make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper

Dim: TypeAlias = int | str
Dims: TypeAlias = tuple[Dim, ...]

LAST = np.iinfo(np.int64).min
HALVES = ("float16", "bfloat16")
FLOATS = ("float32", *HALVES, "float64")
WIDTH = 5
TYPES: dict[str, int] = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}


@dataclass
class Sketch:
    """A model on its way; values are names with their dims."""

    dtype: str
    dims: dict[str, Dims] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, Dims] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    """Of the inputs that are not of the model's own."""
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def input(self, dims: Dims, dtype: int | None = None) -> str:
        name = f"i{len(self.inputs)}"
        self.inputs[name] = self.dims[name] = dims
        if dtype is not None:
            self.types[name] = dtype
        return name

    def numbers(self, *values: int) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def add(self, op: str, *operands: str, dims: Dims, **attributes: Any) -> str:
        return self.add_all(op, operands, [dims], **attributes)[0]

    def add_all(
        self, op: str, operands: Sequence[str], results: Sequence[Dims], **attributes: Any
    ) -> list[str]:
        names = [f"v{len(self.dims)}_{place}" for place in range(len(results))]
        self.nodes.append(helper.make_node(op, list(operands), names, **attributes))
        self.dims.update(zip(names, results, strict=True))
        return names


Step: TypeAlias = Callable[[Sketch, str], str | None]
"""Appends operators that read a value; None: they cannot read values of its dims."""


# -- operators


def elementwise(op: str) -> Step:
    """Element by element; of what are no floats, that which all of their types have."""
    return lambda s, x: s.add(_OF_OTHERS.get(s.dtype, op), x, dims=s.dims[x])


_OF_OTHERS = {"int64": "BitwiseNot", "int32": "BitwiseNot", "uint8": "BitwiseNot", "bool": "Not"}


def _scaled(s: Sketch, x: str) -> str:
    return s.add("Mul", x, s.input((s.dims[x][-1],)), dims=s.dims[x])


def _chosen(s: Sketch, x: str) -> str:
    dims = s.dims[x]
    condition = s.input((dims[-2], dims[-1]), TensorProto.BOOL)
    return s.add("Where", condition, x, s.input((dims[-1],)), dims=dims)


def _compared(s: Sketch, x: str) -> str | None:
    """Of floats, rounding would decide."""
    if s.dtype in FLOATS:
        return None
    equal = s.add("Equal", x, s.input((s.dims[x][-1],)), dims=s.dims[x])
    return s.add("Cast", equal, dims=s.dims[x], to=TYPES[s.dtype])


def _product(s: Sketch, x: str) -> str:
    *outer, k = s.dims[x]
    return s.add("MatMul", x, s.input((k, WIDTH)), dims=(*outer, WIDTH))


def _batched(s: Sketch, x: str) -> str:
    *batch, m, k = s.dims[x]
    return s.add("MatMul", x, s.input((*batch, k, WIDTH)), dims=(*batch, m, WIDTH))


def _right_operand(s: Sketch, x: str) -> str:
    *batch, k, n = s.dims[x]
    return s.add("MatMul", s.input((*batch, WIDTH, k)), x, dims=(*batch, WIDTH, n))


def _gram(s: Sketch, x: str) -> str:
    *batch, m, _ = s.dims[x]
    return s.add("MatMul", x, _transpose(0, 1, 3, 2)(s, x) or x, dims=(*batch, m, m))


def _pointwise(s: Sketch, x: str) -> str | None:
    n, channels, h, w = s.dims[x]
    if not isinstance(channels, int):
        return None
    return s.add("Conv", x, s.input((WIDTH, channels, 1, 1)), dims=(n, WIDTH, h, w))


def _reduction(op: str, *axes: int) -> Step:
    def reduce(s: Sketch, x: str) -> str:
        kept = tuple(1 if axis in axes else dim for axis, dim in enumerate(s.dims[x]))
        return s.add(op, x, s.numbers(*axes), dims=kept)

    return reduce


def _softmax(axis: int) -> Step:
    return lambda s, x: s.add("Softmax", x, dims=s.dims[x], axis=axis)


def _pool(op: str) -> Step:
    return lambda s, x: s.add(op, x, dims=s.dims[x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def _depthwise(s: Sketch, x: str) -> str | None:
    channels = s.dims[x][1]
    if not isinstance(channels, int):
        return None
    weights = s.input((channels, 1, 3, 3))
    return s.add("Conv", x, weights, dims=s.dims[x], group=channels, pads=[1, 1, 1, 1])


def _grouped(s: Sketch, x: str) -> str | None:
    """Groups of two channels; channels alone, two results of each, where their number is odd."""
    n, channels, h, w = s.dims[x]
    if not isinstance(channels, int):
        return None
    alone = channels % 2
    results = channels * 2 if alone else channels
    weights = s.input((results, 1 if alone else 2, 3, 3))
    dims = (n, results, h, w)
    return s.add("Conv", x, weights, dims=dims, group=results // 2, pads=[1, 1, 1, 1])


def _gather(axis: int) -> Step:
    def gather(s: Sketch, x: str) -> str:
        dims = s.dims[x]
        index = s.input(("g",), TensorProto.INT64)
        return s.add("Gather", x, index, dims=(*dims[:axis], "g", *dims[axis + 1 :]), axis=axis)

    return gather


def _concat(axis: int) -> Step:
    def concat(s: Sketch, x: str) -> str:
        dims = s.dims[x]
        other = elementwise("Neg")(s, x) or x
        joined = (*dims[:axis], _product_of(2, dims[axis]), *dims[axis + 1 :])
        return s.add("Concat", x, other, dims=joined, axis=axis)

    return concat


def _beside_input(op: str) -> Step:
    """With the model's input, which the producer reads, too."""

    def combine(s: Sketch, x: str) -> str | None:
        return s.add(op, x, "i0", dims=s.dims[x]) if s.dims[x] == s.dims["i0"] else None

    return combine


OPERATORS: dict[str, Step] = {
    "element-wise": elementwise("Relu"),
    "scaled": _scaled,
    "chosen": _chosen,
    "compared": _compared,
    "product": _product,
    "batched product": _batched,
    "right operand": _right_operand,
    "gram": _gram,
    "1x1 convolution": _pointwise,
    "sum of rows": _reduction("ReduceSum", 3),
    "maximum of columns": _reduction("ReduceMax", 2),
    "mean of images": _reduction("ReduceMean", 2, 3),
    "sum of all": _reduction("ReduceSum", 1, 2, 3),
    "softmax": _softmax(3),
    "softmax across": _softmax(1),
    "average": _pool("AveragePool"),
    "maximum": _pool("MaxPool"),
    "depth-wise": _depthwise,
    "grouped": _grouped,
    "gather": _gather(2),
    "gather rows": _gather(0),
    "concat": _concat(1),
    "concat of rows": _concat(3),
}
CONSUMERS: dict[str, Step] = OPERATORS | {
    "plus input": _beside_input("Add"),
    "times input": _beside_input("Mul"),
}


# -- views


def _transpose(*perm: int) -> Step:
    def transpose(s: Sketch, x: str) -> str:
        return s.add("Transpose", x, dims=tuple(s.dims[x][axis] for axis in perm), perm=list(perm))

    return transpose


def _product_of(*dims: Dim) -> Dim:
    if all(isinstance(dim, int) for dim in dims):
        return int(np.prod([int(dim) for dim in dims]))
    return "*".join(
        f"({dim})" if isinstance(dim, str) and not dim.isalpha() else str(dim)
        for dim in dims
        if dim != 1
    )


def _merge_rows(s: Sketch, x: str) -> str:
    a, b, c, d = s.dims[x]
    return s.add("Reshape", x, s.numbers(0, 0, 1, -1), dims=(a, b, 1, _product_of(c, d)))


def _merge_batch(s: Sketch, x: str) -> str:
    a, b, c, d = s.dims[x]
    return s.add("Reshape", x, s.numbers(1, -1, 0, 0), dims=(1, _product_of(a, b), c, d))


def _exchange(s: Sketch, x: str) -> str:
    """A reshape to the transposed shape: not what a transpose does."""
    a, b, c, d = s.dims[x]
    shape = s.add("Shape", _transpose(0, 1, 3, 2)(s, x) or x, dims=(4,))
    return s.add("Reshape", x, shape, dims=(a, b, d, c))


def _reverse(axis: int) -> Step:
    def reverse(s: Sketch, x: str) -> str:
        ends = [s.numbers(number) for number in (-1, LAST, axis, -1)]
        return s.add("Slice", x, *ends, dims=s.dims[x])

    return reverse


def _expand(axis: int) -> Step:
    def expand(s: Sketch, x: str) -> str:
        dims = s.dims[x]
        ends = [s.numbers(number) for number in (0, 1, axis)]
        first = s.add("Slice", x, *ends, dims=(*dims[:axis], 1, *dims[axis + 1 :]))
        return s.add("Expand", first, s.add("Shape", x, dims=(4,)), dims=dims)

    return expand


def _squeeze(s: Sketch, x: str) -> str:
    a, b, c, d = s.dims[x]
    wide = s.add("Unsqueeze", x, s.numbers(1), dims=(a, 1, b, c, d))
    turned = s.add("Transpose", wide, dims=(1, a, c, b, d), perm=[1, 0, 3, 2, 4])
    return s.add("Squeeze", turned, s.numbers(0), dims=(a, c, b, d))


def _half(dim: Dim) -> Dim:
    return -(-dim // 2) if isinstance(dim, int) else f"-(-({dim})//2)"


def _more(dim: Dim, by: int) -> Dim:
    return dim + by if isinstance(dim, int) else f"({dim}+{by})"


def _every_other(axis: int, step: int) -> Step:
    def slice_(s: Sketch, x: str) -> str:
        dims = s.dims[x]
        first, last = (0, np.iinfo(np.int64).max) if step > 0 else (-1, LAST)
        ends = [s.numbers(number) for number in (first, last, axis, step)]
        return s.add("Slice", x, *ends, dims=(*dims[:axis], _half(dims[axis]), *dims[axis + 1 :]))

    return slice_


def _halves(axis: int, exchanged: bool) -> Step:
    """The first of two parts, or both the other way round."""

    def split(s: Sketch, x: str) -> str:
        dims = s.dims[x]
        first = (*dims[:axis], _half(dims[axis]), *dims[axis + 1 :])
        parts = s.add_all("Split", [x], [first, first], axis=axis, num_outputs=2)
        return s.add("Concat", *parts[::-1], dims=dims, axis=axis) if exchanged else parts[0]

    return split


def _doubled(axis: int) -> Step:
    def concat(s: Sketch, x: str) -> str:
        dims = s.dims[x]
        joined = (*dims[:axis], _product_of(2, dims[axis]), *dims[axis + 1 :])
        return s.add("Concat", x, x, dims=joined, axis=axis)

    return concat


def _padded(rows: int, columns: int) -> Step:
    """Behind the rows, and before the columns."""

    def pad(s: Sketch, x: str) -> str:
        a, b, c, d = s.dims[x]
        pads = s.numbers(0, 0, 0, columns, 0, 0, rows, 0)
        return s.add("Pad", x, pads, dims=(a, b, _more(c, rows), _more(d, columns)))

    return pad


def _chain(*steps: Step) -> Step:
    def chain(s: Sketch, x: str) -> str | None:
        value: str | None = x
        for step in steps:
            value = None if value is None else step(s, value)
        return value

    return chain


VIEWS: dict[str, Step] = {
    "nothing": lambda s, x: x,
    "transpose of rows": _transpose(0, 1, 3, 2),
    "transpose of heads": _transpose(0, 2, 1, 3),
    "transpose to channels last": _transpose(0, 2, 3, 1),
    "transpose of all": _transpose(3, 2, 1, 0),
    "merged rows": _merge_rows,
    "merged batch": _merge_batch,
    "regrouped": _exchange,
    "reversed rows": _reverse(2),
    "reversed columns": _reverse(3),
    "expanded": _expand(3),
    "expanded rows": _expand(2),
    "squeezed": _squeeze,
    "every other row": _every_other(2, 2),
    "every other column, reversed": _every_other(3, -2),
    "first half of rows": _halves(2, exchanged=False),
    "halves exchanged": _halves(3, exchanged=True),
    "twice": _doubled(2),
    "padded": _padded(2, 1),
    "cut": _padded(-1, 0),
    "cut and padded": _padded(-1, 2),
    "element-wise, transposed": _chain(elementwise("Sigmoid"), _transpose(0, 1, 3, 2)),
    "transposed, element-wise": _chain(_transpose(0, 1, 3, 2), elementwise("Sigmoid")),
    "reversed, transposed": _chain(_reverse(3), _transpose(0, 1, 3, 2)),
    "transposed, merged": _chain(_transpose(0, 1, 3, 2), _merge_rows),
}
