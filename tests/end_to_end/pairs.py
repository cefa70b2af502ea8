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
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

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
from tests.end_to_end.steps import (
    CONSUMERS,
    FLOATS,
    HALVES,
    OPERATORS,
    TYPES,
    VIEWS,
    Dim,
    Dims,
    Sketch,
    Step,
    elementwise,
)

CHANNELS = 3

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
OF_SOMETHING = ("average", "mean", "maximum", "softmax")
"""Operators of which the result over nothing is no number that engines agree on."""
MET: dict[str, Step] = {"input": lambda s, x: x, **OPERATORS}
READERS = ("element-wise", "product", "right operand", "sum of rows", "softmax", "gather")
BESIDE = ("nothing", "result", "reader", "consumer", "view", "all")
"""What reads the values between besides: nothing; the caller the producer's result; another operator that; the consumer's
result by way of its sum; the caller what the view gives; the caller, and other operators, both.
"""


Case = TypeVar("Case")


class _Combined(Sequence[Case]):
    """A case for each combination of names, as `itertools.product` orders them; made when it is asked for, since there are
    millions and a test picks some.
    """

    def __init__(self, make: Callable[..., Case], *names: Iterable[str]) -> None:
        self._make = make
        self._names = [tuple(of_part) for of_part in names]

    def __len__(self) -> int:
        return math.prod(map(len, self._names))

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        chosen = []
        for of_part in reversed(self._names):
            place, at = divmod(place, len(of_part))
            chosen.append(of_part[at])
        return self._make(*reversed(chosen))


@dataclass(frozen=True)
class Pair:
    producer: str
    view: str
    consumer: str
    beside: str
    declared: str
    dtype: str = "float32"


def pairs(dtype: str = "float32") -> Sequence[Pair]:
    producers = [name for name in OPERATORS if runs(name, dtype)]
    consumers = [name for name in CONSUMERS if runs(name, dtype)]
    pair = functools.partial(Pair, dtype=dtype)
    return _Combined(pair, producers, VIEWS, consumers, BESIDE, DECLARED)


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


def meetings(
    dtype: str = "float32",
    producers: Iterable[str] = MET,
    declared: Iterable[str] = DECLARED,
    readers: Iterable[str] = READERS,
) -> Sequence[Meeting]:
    """Readers that are alike meet most readily, those of squares wherever they do; and some that are not."""

    def meeting(producer: str, dims: str, *ends: str) -> Meeting:
        left_view, right_view, left, right = ends
        return Meeting(producer, left_view, left, right_view, right, dims, dtype)

    return _Combined(meeting, producers, declared, VIEWS, VIEWS, readers, readers)


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
        outputs += [
            result,
            seen,
            *(elementwise("Tanh")(s, value) or value for value in (result, seen)),
        ]
    elif pair.beside == "reader":
        outputs.append(elementwise("Tanh")(s, result) or result)
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
    cases: Sequence[Pair | Meeting] = (meetings if arguments.meetings else pairs)(arguments.dtype)
    options = dataclasses.replace(OPTIONS[arguments.options], simd=arguments.simd)
    for case in cases[arguments.offset :: arguments.step]:
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
