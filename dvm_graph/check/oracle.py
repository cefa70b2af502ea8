"""onnxruntime as a witness of what ONNX nodes mean, and as the vendor library.

In: the imported graph, and results of basic operators by the names of ONNX values. Out: findings where
an ONNX node gives something else on the same operands.

A node is judged on the numbers that its operands have here, so that no error builds up from node to
node. It is a witness of meaning, not of rounding: the bound is several times that of the operators, and
at least a small part of the largest magnitude, be it inside of the node. Where basic operators leave out an operand, it is
onnxruntime's, and integers may be what comes of its rounding. Nodes that differ in the values they touch alone are
judged once; what onnxruntime refuses is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from dvm_graph.check.bounded import Bounded
from dvm_graph.check.compare import compare
from dvm_graph.check.findings import Finding, Subject
from dvm_graph.check.reference import Reference
from dvm_graph.errors import DvmError, UnsupportedError
from dvm_graph.import_ import cuts_sums_of_bytes
from dvm_graph.ir import Array, DType, Graph, Node, Value, read_from_around

_SLACK = 64.0
_SMALL_PART = 2.0**-18
_GATED = frozenset(("GRU", "LSTM", "RNN"))
"""Operators whose steps compute numbers of about 1, however small the states are that come of them."""
_SMALL = 64
"""Elements up to which the contents of an operand tell nodes apart."""
_SAMPLES = 8
_MARGIN = 8.0
"""How many times what a node's result moves in as many samples of its operands it may be off."""
_WHOLE = 2.0**53
"""From here on float64 does not hold all integers."""
_RANDOM = frozenset(
    ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli")
)


class Oracle:
    """Judges results by the nodes of an imported graph."""

    def __init__(self, imported: Graph | None) -> None:
        nodes = () if imported is None else imported.nodes
        self._producers = {value.name: node for node in nodes for value in node.outputs}
        self._judged: set[Any] = set()
        self._wrong: set[Node] = set()
        self.findings: list[Finding] = []
        self._subject = Subject("decompose", "decompose")
        self._values: dict[str, Value] = {}
        self._computed: dict[Value, Array] = {}
        """ONNX values without a counterpart, at the extents of one run."""

    def begin_run(self) -> None:
        self._computed = {}

    def begin(self, graph: Graph, subject: Subject) -> None:
        """What is judged belongs to `graph`, which the imported one was decomposed to."""
        self._values = {value.name: value for value in graph.values()}
        self._subject = subject

    def judges(self, value: Value) -> bool:
        """The value is the result of an ONNX node."""
        node = self._producers.get(value.name)
        return node is not None and node.op not in _RANDOM

    def judge(self, value: Value, result: Bounded, reference: Reference) -> None:
        """Holds what stands for the result of an ONNX node to what onnxruntime makes of it."""
        node = self._producers[value.name]
        index = [output.name for output in node.outputs].index(value.name)
        try:
            key = (self._key(node, reference), index)
            if key in self._judged:
                return
            self._judged.add(key)
            operands = self._operands(node, reference)
            if any(operand.size == 0 for operand in operands.values()):
                return  # engines differ in what comes of nothing, and onnxruntime may end the process
            if _undefined(node, [self._array(v, reference) for v in node.inputs if v is not None]):
                return
            (array,) = run_node(node, [node.outputs[index]], operands)
        except (DvmError, KeyError, TypeError, IndexError):
            return
        if array.shape == () and array.item() is None:
            return  # onnxruntime leaves it out: indices of float16 maxima, on ARM
        has_nan = any(map(_has_nan, operands.values()))
        inside = 1.0 if node.op in _GATED else 0.0
        problem, error = self._compare(array, result, has_nan, inside)
        own = self._computed.keys() & operands.keys()
        rounds = array.dtype.kind in "fV"
        if problem and (rounds or own) and array.shape == result.value.shape:
            output = node.outputs[index]
            near = (None, 1.0) if rounds else (own, _MARGIN)
            moved = _movement(node, output, operands, array, *near)
            slack = _MARGIN * moved if rounds else np.where(moved > 0, np.inf, 0.0)
            problem, error = self._compare(array, result, has_nan, inside, slack)
        if problem and node not in self._wrong:
            self._wrong.add(node)
            extents = str(reference.extents)
            problem = f"{node.op} {problem} (the first number is onnxruntime's)"
            self.findings.append(Finding("decompose", "", node.origin, extents, problem, error))
            self._subject.failed = True

    def _compare(
        self,
        array: Array,
        result: Bounded,
        has_nan: bool,
        inside: float,
        moved: Array | float = 0.0,
    ) -> tuple[str, float]:
        """`has_nan`: an operand has, and engines differ in what the least of such numbers is.
        `inside`: the size of what the node computes on its way.
        `moved`: what rounding inside of the node may make of it besides.
        """
        wanted = result.wide()
        if array.shape != wanted.value.shape:
            return f"is {list(array.shape)}, but {list(wanted.value.shape)} was deduced", np.inf
        if not wanted.is_number:
            return "", 0.0
        if not wanted.is_float:
            return compare(array, Bounded(wanted.value, wanted.errors + moved), self._subject)
        size = np.abs(wanted.value)
        greatest = float(np.max(size, where=np.isfinite(size), initial=inside))
        bound = wanted.errors * _SLACK + greatest * _SMALL_PART + moved
        if has_nan:
            bound = np.where(np.isnan(wanted.value), np.inf, bound)
        return compare(array, Bounded(wanted.value, bound), self._subject)

    def _operands(self, node: Node, reference: Reference) -> dict[Value, Array]:
        return {
            value: self._array(value, reference)
            for value in node.inputs
            if value is not None and not value.is_constant
        }

    def _array(self, value: Value, reference: Reference) -> Array:
        """An ONNX value as it is here, or as onnxruntime computes it where it has no counterpart."""
        here = self._values.get(value.name, value)
        if here in reference.known or here.is_constant:
            return stored(reference.operand(here), here.dtype)
        array = self._computed.get(value)
        if array is None:
            node = self._producers[value.name]
            (array,) = run_node(node, [value], self._operands(node, reference))
            self._computed[value] = array
        return array

    def _key(self, node: Node, reference: Reference) -> Any:
        if node.regions:
            return node.name
        operands: list[Any] = []
        for value in node.inputs:
            if value is None:
                operands.append(None)
                continue
            array = value.data if value.data is not None else self._array(value, reference)
            contents = (
                array.tobytes() if array.size <= _SMALL and array.dtype.kind in "iub" else b""
            )
            operands.append((array.shape, array.dtype.str, contents))
        attrs = sorted((name, str(attr)) for name, attr in node.attrs.items())
        return node.domain, node.op, node.version, str(attrs), tuple(operands)


def run_vendor(node: Node, outputs: Sequence[Value], reference: Reference) -> list[Array]:
    """The results of a vendor operator on what its operands are known to be.

    What passes may make constants it reads as such at every stage: onnxruntime packs weights that are
    constants, and may multiply by them in another way.

    Raises:
        DvmError: onnxruntime refuses it.
    """
    operands = {
        value: stored(reference.operand(value), value.dtype)
        for value in node.inputs
        if value is not None and not value.is_constant
    }
    constants = {
        value: replace(value, shape=array.shape, data=array, producer=None)
        for value, array in operands.items()
        if value in reference.settled and value.dtype is not DType.OPAQUE
    }
    inputs = [None if value is None else constants.get(value, value) for value in node.inputs]
    given = {value: array for value, array in operands.items() if value not in constants}
    return run_node(replace(node, inputs=tuple(inputs)), outputs, given)


def run_node(node: Node, outputs: Sequence[Value], operands: dict[Value, Array]) -> list[Array]:
    """Results of an ONNX node.

    Raises:
        DvmError: onnxruntime refuses it.
    """
    from dvm_graph.runtime.partitions import make_partition
    from dvm_graph.runtime.vendor_model import VendorThreads

    named = [value for value in outputs if value.name]
    if not named:
        raise UnsupportedError(f"{node.name} has no results")
    # With the shapes at hand, and as it is: onnxruntime's optimiser does not expect every node.
    known = {value: _with_shape_of(value, array) for value, array in operands.items()}
    inputs = tuple(None if value is None else known.get(value, value) for value in node.inputs)
    copy = replace(node, inputs=inputs)
    partition = make_partition([copy], named, VendorThreads(1), optimise=False).run
    given = {known[value]: array for value, array in operands.items()}
    arrays = [_unboxed(value.dtype.bits(given[value])) for value in read_from_around([copy])]
    results = partition(arrays, None)
    return [
        boxed(result).view(value.dtype.numpy) if value.dtype is DType.BFLOAT16 else boxed(result)
        for value, result in zip(named, results, strict=True)
    ]


def _with_shape_of(value: Value, array: Array) -> Value:
    if value.dtype is DType.OPAQUE:
        return value
    return Value(value.name, value.dtype, array.shape)


def _movement(
    node: Node,
    output: Value,
    operands: dict[Value, Array],
    array: Array,
    only: Set[Value] | None,
    units: float,
) -> Array:
    """How far a node's result moves where each element of its operands, or `only` of some, does within so many units in its last
    place.

    What changes otherwise than by a number is open.
    """
    moved = np.zeros(array.shape)
    constants = {v: np.asarray(v.data) for v in node.inputs if v is not None and v.is_constant}
    operands = {**{v: x for v, x in constants.items() if x.dtype.kind in "fV"}, **operands}
    generator = np.random.default_rng(0)
    for _ in range(_SAMPLES):
        try:
            near = {
                v: _near(x, generator, units) if only is None or v in only else x
                for v, x in operands.items()
            }
            (other,) = run_node(node, [output], near)
        except DvmError:
            continue
        with np.errstate(all="ignore"):
            one, two = array.astype(np.float64), other.astype(np.float64)
            step = np.where((one == two) | (np.isnan(one) & np.isnan(two)), 0, np.abs(one - two))
        moved = np.fmax(moved, np.where(np.isnan(step), np.inf, step))
    return moved


def _near(array: Array, generator: np.random.Generator, units: float) -> Array:
    if array.dtype.kind not in "fV":
        return array
    unit = units * float(np.spacing(np.ones((), array.dtype)))
    near = array.astype(np.float64) * (1 + generator.uniform(-unit, unit, array.shape))
    with np.errstate(all="ignore"):
        return np.asarray(near.astype(array.dtype))


_FOLDS: dict[str, Callable[[Array], Any]] = {
    "ReduceSum": np.sum,
    "ReduceL1": np.sum,
    "ReduceSumSquare": lambda size: np.sum(size * size),
    "ReduceProd": lambda size: np.prod(np.maximum(size, 1)),
}
"""What folds of integers may reach at most, by sizes of operands; onnxruntime does not wrap there."""


def _undefined(node: Node, operands: Sequence[Array]) -> bool:
    """Sums of products of bytes may be cut. A Celu that divides by 0 is one thing or another by its type. Integer divisions
    by 0 end the process in onnxruntime, labels below 0 are read from anywhere, powers and folds that no integer or no
    float64 holds come out as whatever; the logarithm of a sum of exponentials rounds each of its steps to integers; of
    equal numbers less their mean rounding is left, which is divided by a deviation of nothing. Products by weights whose
    rows name their blocks are made of whatever is in memory. Which sequences an LSTM by bytes rounds together hangs on
    threads.
    """
    if node.op == "DynamicQuantizeLSTM":
        return bool(operands[0].shape[1:2] != (1,))
    types = {operand.dtype.str for operand in operands}
    if node.op in _OF_BYTES and types >= {"|u1", "|i1"} and cuts_sums_of_bytes():
        return True
    if node.op == "MatMulNBits":
        return len(node.inputs) > 4 and node.inputs[4] is not None
    if node.op == "Celu":
        return not node.attrs.get("alpha", 1.0)
    if node.op in _FOLDS and operands[0].dtype.kind in "iu":
        reach = _FOLDS[node.op](np.abs(operands[0].astype(np.float64)))
        return bool(reach >= min(np.iinfo(operands[0].dtype).max, _WHOLE))
    if node.op == "ReduceLogSumExp" and operands[0].dtype.kind in "iu":
        return True
    if node.op in ("InstanceNormalization", "MeanVarianceNormalization"):
        spatial = tuple(range(2, operands[0].ndim))
        axes = tuple(node.attrs.get("axes", spatial if node.op[0] == "I" else (0, 2, 3)))
        return bool((operands[0].max(axes) == operands[0].min(axes)).any())
    if len(operands) < 2 or operands[1].dtype.kind not in "iu":
        return False
    if node.op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        return bool((operands[1] < 0).any())
    if node.op == "Pow" and operands[0].dtype.kind in "iu":
        with np.errstate(all="ignore"):
            power = np.abs(operands[0].astype(np.float64)) ** operands[1]
        ends = np.iinfo(operands[0].dtype)
        return bool((power >= min(ends.max, _WHOLE)).any())
    return node.op in ("Div", "Mod") and not operands[1].all()


_OF_BYTES = frozenset(
    (
        *("ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger"),
        *("MatMulIntegerToFloat", "QAttention", "QGemm", "QLinearConv", "QLinearMatMul"),
    )
)


def _has_nan(array: Array) -> bool:
    return array.dtype.kind in "fV" and bool(np.isnan(array.astype(np.float64)).any())


def boxed(feed: Any) -> Array:
    """A feed as an array: sequences and optionals as one object."""
    if isinstance(feed, np.ndarray):
        return feed
    if isinstance(feed, list | tuple | dict) or feed is None:
        box = np.empty((), object)
        box[()] = feed
        return box
    return np.asarray(feed)


def _unboxed(array: Array) -> Any:
    return array.item() if array.dtype == object and not array.shape else array


def stored(operand: Bounded, dtype: DType) -> Array:
    """A number as its type holds it."""
    if dtype is DType.OPAQUE:
        return operand.value
    with np.errstate(all="ignore"):
        array: Array = np.array(operand.value, order="C").astype(dtype.numpy)
        return array
