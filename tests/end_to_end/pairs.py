"""Every pair of operator kinds with every view between them, in chains and diamonds, as small models.

A `Pair` names a producer, a view, a consumer, what else reads the values between, and how the dims are declared.
A `Meeting` names two views of one producer's result, and the operators that read them and meet behind. `pairs()` and
`meetings()` list them all in a fixed order, in a type of elements; `build` makes the model, or None where an operator
cannot read what a view gives. `python -m tests.end_to_end.pairs` runs them all against onnxruntime, `test_pairs.py` some of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    RuntimeException,
)
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_

import dvm_graph
from dvm_graph._core import simd_levels
from tests.end_to_end.reference import Array, assert_all_close, session

Dim: TypeAlias = int | str
Dims: TypeAlias = tuple[Dim, ...]

LAST = np.iinfo(np.int64).min
CHANNELS = 3
HALVES = ("float16", "bfloat16")
FLOATS = ("float32", *HALVES, "float64")
WIDTH = 5

DECLARED: dict[str, tuple[Dims, tuple[tuple[int, ...], ...]]] = {
    "symbolic": (
        ("a", CHANNELS, "c", "d"),
        ((2, 3, 5, 4), (1, 3, 4, 4), (3, 3, 1, 3), (2, 3, 0, 2)),
    ),
    "one symbol": (("a", "a", "a", "a"), ((3, 3, 3, 3), (1, 1, 1, 1))),
    "numbers": ((CHANNELS,) * 4, ((3, 3, 3, 3),)),
    "ones": ((1, CHANNELS, "c", 1), ((1, 3, 4, 1), (1, 3, 1, 1))),
}
"""Dims of the input, and the extents to run it at: symbolic, 1, equal by declaration or by coincidence, 0."""


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


def _map(op: str) -> Step:
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
        other = _map("Neg")(s, x) or x
        joined = (*dims[:axis], _product_of(2, dims[axis]), *dims[axis + 1 :])
        return s.add("Concat", x, other, dims=joined, axis=axis)

    return concat


def _beside_input(op: str) -> Step:
    """With the model's input, which the producer reads, too."""

    def combine(s: Sketch, x: str) -> str | None:
        return s.add(op, x, "i0", dims=s.dims[x]) if s.dims[x] == s.dims["i0"] else None

    return combine


OPERATORS: dict[str, Step] = {
    "element-wise": _map("Relu"),
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
    "element-wise, transposed": _chain(_map("Sigmoid"), _transpose(0, 1, 3, 2)),
    "transposed, element-wise": _chain(_transpose(0, 1, 3, 2), _map("Sigmoid")),
    "reversed, transposed": _chain(_reverse(3), _transpose(0, 1, 3, 2)),
    "transposed, merged": _chain(_transpose(0, 1, 3, 2), _merge_rows),
}
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
OF_SOMETHING = ("average", "mean", "maximum", "softmax")
"""Operators of which the result over nothing is no number that engines agree on."""
MET: dict[str, Step] = {"input": lambda s, x: x, **OPERATORS}
READERS = ("element-wise", "product", "right operand", "sum of rows", "softmax", "gather")
BESIDE = ("nothing", "result", "reader", "consumer", "view", "all")
"""What reads the values between besides: nothing; the caller the producer's result; another operator that; the consumer's
result by way of its sum; the caller what the view gives; the caller, and other operators, both.
"""


@dataclass(frozen=True)
class Pair:
    producer: str
    view: str
    consumer: str
    beside: str
    declared: str
    dtype: str = "float32"


def pairs(dtype: str = "float32") -> Iterator[Pair]:
    for names in itertools.product(OPERATORS, VIEWS, CONSUMERS, BESIDE, DECLARED):
        if runs(names[0], dtype) and runs(names[2], dtype):
            yield Pair(*names, dtype)


@functools.cache
def runs(operator: str, dtype: str) -> bool:
    """Whether there is a reference for an operator in a type: of floats, that in float32 at least."""
    if dtype in FLOATS:
        return True
    s = Sketch(dtype)
    result = CONSUMERS[operator](s, s.input(DECLARED["numbers"][0]))
    try:
        return result is not None and _session_of(_model(s, [result], TYPES[dtype])) is not None
    except (Fail, InvalidGraph):
        return False


@dataclass(frozen=True)
class Meeting:
    producer: str
    left_view: str
    left: str
    right_view: str
    right: str
    declared: str
    dtype: str = "float32"


def meetings(dtype: str = "float32") -> Iterator[Meeting]:
    """Readers that are alike meet most readily, those of squares wherever they do; and some that are not."""
    for producer, declared in itertools.product(MET, DECLARED):
        for views in itertools.product(VIEWS, repeat=2):
            for readers in itertools.product(READERS, repeat=2):
                ends = (views[0], readers[0], views[1], readers[1])
                yield Meeting(producer, *ends, declared, dtype)


def _sketch(case: Pair | Meeting) -> tuple[Sketch, list[str]] | None:
    """The model on its way, and its results."""
    s = Sketch(case.dtype)
    result = MET[case.producer](s, s.input(DECLARED[case.declared][0]))
    if result is None:
        return None
    outputs = _paired(case, s, result) if isinstance(case, Pair) else _met(case, s, result)
    return None if outputs is None else (s, outputs)


def _paired(pair: Pair, s: Sketch, result: str) -> list[str] | None:
    seen = VIEWS[pair.view](s, result)
    if seen is None:
        return None
    read = CONSUMERS[pair.consumer](s, seen)
    if read is None:
        return None
    outputs = [read]
    if pair.beside == "result":
        outputs.append(result)
    elif pair.beside in ("view", "all") and seen == result:
        return None
    elif pair.beside == "view":
        outputs.append(seen)
    elif pair.beside == "all":
        outputs += [result, seen, *(_map("Tanh")(s, value) or value for value in (result, seen))]
    elif pair.beside == "reader":
        outputs.append(_map("Tanh")(s, result) or result)
    elif pair.beside == "consumer" and pair.dtype not in FLOATS:
        return None
    elif pair.beside == "consumer":
        total = s.add("ReduceSum", read, s.numbers(0, 1, 2, 3), dims=(1, 1, 1, 1))
        outputs = [s.add("Add", result, total, dims=s.dims[result])]
    return outputs


def _met(meeting: Meeting, s: Sketch, result: str) -> list[str] | None:
    ends = []
    for view, reader in ((meeting.left_view, meeting.left), (meeting.right_view, meeting.right)):
        seen = VIEWS[view](s, result)
        read = None if seen is None else OPERATORS[reader](s, seen)
        if read is None:
            return None
        ends.append(read)
    if s.dims[ends[0]] != s.dims[ends[1]]:
        return None
    return [s.add("Mul", *ends, dims=s.dims[ends[0]])]


def build(case: Pair | Meeting, rounded: bool = False) -> onnx.ModelProto | None:
    """`rounded`: in float32, with every number that an operator gives rounded to the type."""
    sketched = _sketch(case)
    if sketched is None:
        return None
    s, outputs = sketched
    if rounded:
        _round(s, TYPES[case.dtype])
    return _model(s, outputs, TensorProto.FLOAT if rounded else TYPES[case.dtype])


def _model(s: Sketch, outputs: Sequence[str], dtype: int) -> onnx.ModelProto:
    def info(name: str) -> onnx.ValueInfoProto:
        kind = s.types.get(name, dtype)
        dims = [dim if isinstance(dim, int) or dim.isalpha() else None for dim in s.dims[name]]
        return helper.make_tensor_value_info(name, kind, dims)

    graph = helper.make_graph(
        s.nodes,
        "pair",
        [info(name) for name in s.inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        s.constants,
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def _round(s: Sketch, dtype: int) -> None:
    """Puts casts to the type and back behind all operators but those that give shapes."""
    nodes = []
    for node in s.nodes:
        if node.op_type == "Cast":  # of what was compared
            node.attribute[0].i = TensorProto.FLOAT
        if node.op_type in ("Shape", "Equal", "Cast"):
            nodes.append(node)
            continue
        nodes.append(node)
        for place, result in enumerate(node.output):
            wide, narrow = f"{result}_wide", f"{result}_narrow"
            node.output[place] = wide
            to_and_fro = (wide, narrow, dtype), (narrow, result, TensorProto.FLOAT)
            nodes += [helper.make_node("Cast", [a], [b], to=to) for a, b, to in to_and_fro]
    s.nodes = nodes


def feeds_of(case: Pair | Meeting) -> Iterator[dict[str, Array]]:
    """Feeds at each of the extents. Whole numbers, so that sums are exact."""
    declared, runs = DECLARED[case.declared]
    sketched = _sketch(case)
    assert sketched is not None
    s, _ = sketched
    averages = any(word in name for word in OF_SOMETHING for name in vars(case).values())
    for extents in runs:
        if averages and 0 in extents:
            continue
        known: dict[str, int] = {"g": 3}
        known |= {
            dim: extent
            for dim, extent in zip(declared, extents, strict=True)
            if isinstance(dim, str)
        }
        random = np.random.default_rng(sum(extents))
        if min(_extent(dim, known) for dims in s.inputs.values() for dim in dims) < 0:
            continue  # cut by more than there is
        yield {name: _values(s, name, known, random, case.dtype) for name in s.inputs}


def _values(
    s: Sketch, name: str, known: dict[str, int], random: np.random.Generator, dtype: str
) -> Array:
    """Whole numbers; a quarter of them in half types, of which few tell softmaxes of large numbers apart."""
    shape = [_extent(dim, known) for dim in s.inputs[name]]
    if dtype == "bool" or s.types.get(name) == TensorProto.BOOL:
        return random.integers(0, 2, shape).astype(bool)
    if name in s.types:
        return random.integers(
            -1, 1, shape
        )  # every axis that has elements has the first and the last
    numbers = random.integers(0 if dtype == "uint8" else -3, 4, shape)
    kind = helper.tensor_dtype_to_np_dtype(TYPES[dtype])
    return np.asarray(numbers / 4 if dtype in HALVES else numbers).astype(kind)


def _extent(dim: Dim, known: dict[str, int]) -> int:
    return dim if isinstance(dim, int) else int(eval(dim, dict(known)))


def check(case: Pair | Meeting, options: dvm_graph.Options) -> None:
    """Holds a model to onnxruntime, wherever that gives an answer; where it has no kernels for the type, as for most half
    types, to the model in float32 whose numbers are rounded to it.
    """
    model = build(case)
    assert model is not None
    reference = None if case.dtype in HALVES else _session_of(model)
    wide = reference is None
    reference = reference or _session_of(build(case, rounded=True))
    assert reference is not None
    mine = dvm_graph.optimize(model, options)
    kind = helper.tensor_dtype_to_np_dtype(TYPES[case.dtype])
    for feeds in feeds_of(case):
        given = {
            k: v.astype(np.float32) if wide and v.dtype == kind else v for k, v in feeds.items()
        }
        try:
            expected = reference.run(None, given)
        except (
            Fail,
            InvalidArgument,
            RuntimeException,
        ):  # an index into nothing, the greatest of it
            continue
        results = mine.run(feeds)
        assert {result.dtype for result in results} == {kind}
        if case.dtype in HALVES:
            assert_all_close([result.astype(np.float32) for result in results], expected, 64, kind)
        elif wide:
            assert_all_close([result.astype(np.float32) for result in results], expected, 4096)
        else:
            assert_all_close(results, expected, 4096)


def _session_of(model: onnx.ModelProto | None) -> Any:
    """None: onnxruntime lacks a kernel."""
    assert model is not None
    try:
        return session(model)
    except NotImplemented_:
        return None


OPTIONS = {
    "as it is": dvm_graph.Options(),
    "unfused": dvm_graph.Options(fuse=False),
    "fallbacks": dvm_graph.Options(fallbacks="always"),
    "operators": dvm_graph.Options(fallbacks="operators"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs pairs of operators against onnxruntime.")
    parser.add_argument("--step", type=int, default=1, help="every so many pairs")
    parser.add_argument("--offset", type=int, default=0, help="the first pair")
    parser.add_argument("--options", choices=sorted(OPTIONS), default="as it is")
    parser.add_argument("--dtype", choices=TYPES, default="float32")
    parser.add_argument("--simd", choices=simd_levels(), help="a level of the units")
    parser.add_argument("--meetings", action="store_true", help="those instead of pairs")
    arguments = parser.parse_args()
    warnings.simplefilter("error", dvm_graph.RescueWarning)
    done = wrong = 0
    cases: Iterator[Pair | Meeting] = (meetings if arguments.meetings else pairs)(arguments.dtype)
    options = dataclasses.replace(OPTIONS[arguments.options], simd=arguments.simd)
    for case in itertools.islice(cases, arguments.offset, None, arguments.step):
        if build(case) is None:
            continue
        done += 1
        try:
            check(case, options)
        except (AssertionError, dvm_graph.DvmError, dvm_graph.RescueWarning) as error:
            wrong += 1
            print(case, f"{type(error).__name__}: {str(error)[:200]!r}", flush=True)
    print(f"{done} models, {wrong} wrong")


if __name__ == "__main__":
    main()
