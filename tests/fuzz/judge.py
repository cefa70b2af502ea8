"""Whether two answers differ by more than rounding explains.

First by the table of `tests.tolerances`, output by output and relative to the largest magnitude. What is
outside is held against how far the reference itself moves when every operand of every node is multiplied
by one plus a few units in its last place, differently for each reader: what moves it as far is
ill-conditioned (differences of large numbers, steps at their edge, the winner among equals), and no answer
there is wrong.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnxruntime.capi import onnxruntime_pybind11_state

from dvm_graph.import_.loading import every_node
from tests.fuzz.case import Case, Feeds, prune
from tests.fuzz.disturb import disturbed, eps
from tests.fuzz.few_bits import product_of_few_bits
from tests.fuzz.growth import FLOATS, names_read
from tests.fuzz.stepwise import Stepwise, inferred
from tests.fuzz.straight import straight
from tests.tolerances import tolerance

Array: TypeAlias = np.ndarray[Any, Any]

SAMPLES = 64
"""As long as something is not explained: the order of many neighbours is not all other at once."""
MARGIN = 16.0
"""How many times the movement of the reference an answer may be off."""


BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (BFLOAT16, np.dtype(np.float16))
NOT_RUN: tuple[type[Exception], ...] = (
    RuntimeError,
    onnx.shape_inference.InferenceError,
    *(
        found
        for found in vars(onnxruntime_pybind11_state).values()
        if isinstance(found, type) and issubclass(found, Exception)
    ),
)
"""What onnxruntime raises of models that it does not load or run; its errors have no common base."""


class Reference:
    """onnxruntime without its optimisations, on one core.

    It takes and gives no arrays of bfloat16: those pass its borders as float32. Norms in training write over the
    statistics that they are given, arrays of the caller and constants of the session: such models get copies, and a
    session for each run.
    """

    def __init__(self, model: onnx.ModelProto, optimise: bool = False) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        if not optimise:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        graph = model.graph
        self._narrow = [v.type.tensor_type.elem_type == TensorProto.BFLOAT16 for v in graph.output]
        narrow = [v for v in graph.input if v.type.tensor_type.elem_type == TensorProto.BFLOAT16]

        def load(model: onnx.ModelProto) -> ort.InferenceSession:
            data = model.SerializeToString()
            return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])

        session = load(model)
        if narrow or any(self._narrow):
            model = _with_wide_borders(model)
            session = load(model)
        writes = any(map(_trains, every_node(graph.node)))
        self._fresh = (lambda: load(model)) if writes else (lambda: session)
        self._writes = writes

    def run(self, feeds: Feeds) -> list[Any]:
        wide = {
            f"{k}_wide" if _is_bfloat16(v) else k: v.astype(np.float32) if _is_bfloat16(v) else v
            for k, v in (copy.deepcopy(feeds) if self._writes else feeds).items()
        }
        try:
            results = self._fresh().run(None, wide)
        except ValueError as error:  # of its binding: numpy has no array of such extents
            raise RuntimeError(str(error)) from error
        return [
            result.astype(BFLOAT16) if narrow else result
            for result, narrow in zip(results, self._narrow, strict=True)
        ]


def _trains(node: onnx.NodeProto) -> bool:
    return node.op_type == "BatchNormalization" and any(
        attribute.name == "training_mode" and attribute.i for attribute in node.attribute
    )


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == BFLOAT16


def _with_wide_borders(model: onnx.ModelProto) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    nodes = list(result.graph.node)
    for value in graph.input:
        if value.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            wide = f"{value.name}_wide"
            nodes.insert(0, helper.make_node("Cast", [wide], [value.name], to=TensorProto.BFLOAT16))
            value.name = wide
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for value in graph.output:
        if value.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            wide = f"{value.name}_wide"
            nodes.append(helper.make_node("Cast", [value.name], [wide], to=TensorProto.FLOAT))
            value.name = wide
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    del graph.node[:]
    graph.node.extend(nodes)
    return result


def precision(model: onnx.ModelProto, feeds: Feeds, results: Sequence[Any]) -> np.dtype[Any]:
    """The least precise floating-point type that a model names, or computes in.

    Operators that are functions have constants of float32, as the standard writes them down.
    """
    kinds = {array.dtype for array in arrays_of((*feeds.values(), *results))}
    kinds |= {helper.tensor_dtype_to_np_dtype(t.data_type) for t in model.graph.initializer}
    for node in model.graph.node:
        named = {a.i for a in node.attribute if a.name == "to"} & set(TensorProto.DataType.values())
        kinds |= {helper.tensor_dtype_to_np_dtype(number) for number in named - {0}}
        if not node.domain and _is_function(node.op_type, model.opset_import[0].version):
            kinds.add(np.dtype(np.float32))
    order = (*HALVES, np.dtype(np.float32))
    return next((kind for kind in order if kind in kinds), np.dtype(np.float64))


@functools.cache
def _is_function(op: str, opset: int) -> bool:
    if not onnx.defs.has(op, opset, ""):
        return False
    schema = onnx.defs.get_schema(op, opset, "")
    return bool(schema.has_function or schema.has_context_dependent_function)


def arrays_of(values: Iterable[Any]) -> Iterator[Array]:
    """The arrays among values and in their sequences; none of optional values that are not there."""
    for value in values:
        if isinstance(value, list):
            yield from arrays_of(value)
        elif value is not None:
            yield np.asarray(value)


def longest(results: Sequence[Any], feeds: Feeds, model: onnx.ModelProto) -> int:
    """A cautious bound of the terms of one sum: the elements of the largest operand."""
    sizes = [array.size for array in arrays_of((*feeds.values(), *results))]
    sizes += [math.prod(t.dims) for t in model.graph.initializer]
    return max([1, *sizes])


def difference(mine: Any, theirs: Any, kind: np.dtype[Any], terms: int) -> str | None:
    """What is outside the table's bound, as text; None: nothing."""
    wrong = outside(mine, theirs, kind, terms)
    if isinstance(wrong, str) or wrong is None:
        return wrong
    return _describe(np.asarray(mine), np.asarray(theirs), wrong)


def outside(mine: Any, theirs: Any, kind: np.dtype[Any], terms: int) -> Array | str | None:
    """Which elements are outside the bound; a text where types or shapes differ, or elements of a sequence; None: none is."""
    if isinstance(mine, list) and isinstance(theirs, list):
        if len(mine) != len(theirs):
            return f"{len(mine)} elements of a sequence instead of {len(theirs)}"
        found = (difference(a, b, kind, terms) for a, b in zip(mine, theirs, strict=True))
        return next((f"[{at}] {wrong}" for at, wrong in enumerate(found) if wrong), None)
    if not isinstance(mine, np.ndarray) or not isinstance(theirs, np.ndarray):
        return None if type(mine) is type(theirs) else f"{type(mine)} instead of {type(theirs)}"
    if mine.dtype != theirs.dtype:
        return f"dtype {mine.dtype} instead of {theirs.dtype}"
    if mine.shape != theirs.shape:
        return f"shape {mine.shape} instead of {theirs.shape}"
    if mine.dtype.kind in "iubSUO":
        wrong = np.asarray(mine != theirs)
        return wrong if wrong.any() else None
    x, y = mine.astype(np.float64), theirs.astype(np.float64)
    wide = kind if eps(kind) >= eps(mine.dtype) else mine.dtype
    bound = tolerance(wide, terms)
    large = 0.98 * float(ml_dtypes.finfo(mine.dtype).max)
    scale = np.max(np.abs(y), where=np.abs(y) < large, initial=1.0)
    with np.errstate(all="ignore"):
        near = np.abs(x - y) <= bound.absolute * scale + bound.relative * np.abs(y)
    near &= np.isfinite(y)
    near |= (x == y) | (np.isnan(x) & np.isnan(y))
    # the one is infinite, and the other nearly
    near |= (np.abs(x) >= large) & (np.abs(y) >= large) & (np.sign(x) == np.sign(y))
    return None if near.all() else ~near


def _describe(mine: Array, theirs: Array, wrong: Array) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if mine.ndim else ()
    return f"{int(wrong.sum())} of {wrong.size} elements, at {list(at)} {mine[at]} instead of {theirs[at]}"


class Excuse(enum.Enum):
    """Why an answer that differs from the reference's is not wrong."""

    REFEREE = "answers as onnx's evaluator, or as onnxruntime operator by operator or with its optimisations, not as the whole on it"
    ROUNDING = "answers that hang on rounding"
    VENDOR = (
        "refusals of onnxruntime with its optimisations, or answers that change from run to run"
    )
    DOCUMENTED = "answers that differ as documented, or where nothing is promised"


def fails_optimised(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """onnxruntime itself, as people call it, does not run the model."""
    try:
        Reference(model, optimise=True).run(feeds)
    except NOT_RUN:
        return True
    return False


def varies_optimised(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """onnxruntime itself, as people call it, gives other bits when it runs again: it writes into constants it has folded."""
    try:
        reference = Reference(model, optimise=True)
        runs = [[array.tobytes() for array in arrays_of(reference.run(feeds))] for _ in range(3)]
    except NOT_RUN:
        return False
    return runs[0] != runs[1] or runs[1] != runs[2]


def refused_as_documented(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """onnxruntime itself does not run the rest with the results that are documented: their shapes do not fit."""
    if collected_of_nothing(model, feeds):
        return True
    model = straight(model, lambda probe: Reference(probe).run(feeds))
    stepwise = Stepwise(model, _session)
    try:
        stepwise.run(feeds)
    except NOT_RUN:
        return stepwise.met
    return False


def collected_of_nothing(model: onnx.ModelProto, feeds: Feeds) -> set[str]:
    """What depends on what a Loop collects over no turns: its shape is documented to be another one."""
    probe = onnx.ModelProto.FromString(model.SerializeToString())
    collected = {
        name: node
        for node in model.graph.node
        if node.op_type == "Loop"
        for name in node.output[len(node.input) - 2 :]
        if name
    }
    if not collected:
        return set()
    del probe.graph.output[:]
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in collected)
    try:
        values = Reference(probe).run(feeds)
    except NOT_RUN:
        return set()
    found = {
        name
        for name, value in zip(collected, values, strict=True)
        if isinstance(value, np.ndarray) and len(value) == 0
    }
    for node in model.graph.node:
        if not found.isdisjoint(names_read(node)):
            found.update(node.output)
    return found


def explained(
    case: Case, feeds: Feeds, mine: Sequence[Any], theirs: Sequence[Any]
) -> Excuse | None:
    """Why the answer is right all the same; None: it is wrong."""
    open_ = collected_of_nothing(case.model, feeds)
    case = replace(case, model=straight(case.model, lambda probe: Reference(probe).run(feeds)))
    kind, terms = precision(case.model, feeds, theirs), longest(theirs, feeds, case.model)
    found = [outside(a, b, kind, terms) for a, b in zip(mine, theirs, strict=True)]
    names = [value.name for value in case.model.graph.output]
    kept = [i for i, wrong in enumerate(found) if wrong is not None and names[i] not in open_]
    if not kept:
        return Excuse.DOCUMENTED if open_ else Excuse.ROUNDING
    case, feeds = _of_outputs(case, feeds, kept)
    mine, theirs = ([results[index] for index in kept] for results in (mine, theirs))
    wrongs: dict[int, Any] = {index: found[place] for index, place in enumerate(kept)}
    for exact in referees(case, feeds):
        wrongs = {i: w for i, w in wrongs.items() if not _agrees(mine[i], exact[i], kind, terms)}
        if kind in HALVES:
            left = {i: _but_kept(w, mine[i], theirs[i], exact[i], terms) for i, w in wrongs.items()}
            wrongs = {i: w for i, w in left.items() if isinstance(w, str) or w.any()}
    if not wrongs:
        return Excuse.REFEREE
    stepwise = Stepwise(case.model, _session)
    try:
        one_by_one = stepwise.run(feeds)
    except NOT_RUN:
        one_by_one = theirs
    left = {i: outside(mine[i], one_by_one[i], kind, terms) for i in wrongs}
    if stepwise.met:  # with documented differences from onnxruntime
        theirs, wrongs = one_by_one, {i: w for i, w in left.items() if w is not None}
    elif all(wrong is None for wrong in left.values()):  # the whole rounds less than its operators
        return Excuse.REFEREE
    excuse = Excuse.DOCUMENTED if stepwise.met else Excuse.ROUNDING
    far = {i: _movement(mine[i], theirs[i])[0] for i, w in wrongs.items() if not isinstance(w, str)}
    left = {index: np.asarray(wrongs[index]) for index in far}
    moved = {index: np.zeros(np.shape(theirs[index])) for index in far}
    for sample in _samples(case.model, feeds, stepwise.met) if wrongs else ():
        for index in wrongs:
            if _shape(sample[index]) != _shape(theirs[index]):
                return Excuse.ROUNDING  # the shape itself hangs on it
        for index, step in far.items():
            movement, jumps = _movement(sample[index], theirs[index])
            moved[index] = np.fmax(moved[index], movement)
            left[index] &= ~jumps & ~((step > 0) & (step <= MARGIN * moved[index]))
        if len(far) == len(wrongs) and not any(wrong.any() for wrong in left.values()):
            return excuse
    return None if wrongs else excuse


def _samples(model: onnx.ModelProto, feeds: Feeds, documented: bool) -> Iterator[list[Any]]:
    """What the reference gives for operands that are moved a little, or for other fillings of what is open.

    Operator by operator it rounds all results, as a whole it need not.
    """
    for number in range(SAMPLES):
        moved = disturbed(model, number)
        try:
            if documented:
                yield Stepwise(model, _session).run(feeds, number)
            yield Stepwise(moved, _session).run(feeds, number)
            if not documented:
                yield Reference(moved).run(feeds)
        except NOT_RUN:
            continue


def _session(model: onnx.ModelProto) -> Callable[[Feeds], list[Any]]:
    return Reference(model).run


def _of_outputs(case: Case, feeds: Feeds, kept: Sequence[int]) -> tuple[Case, Feeds]:
    """The part of a model that some of its outputs depend on: referees need not run the rest."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.output[:]
    for index, value in enumerate(case.model.graph.output):  # those left out keep their types
        (model.graph.output if index in kept else model.graph.value_info).append(value)
    prune(model.graph)
    for node in model.graph.node:
        node.domain = "" if node.domain == "ai.onnx" else node.domain
    read = {value.name for value in model.graph.input}
    given = {name: array for name, array in feeds.items() if name in read}
    return replace(case, model=model, feeds=(given,)), given


def _movement(one: Array, other: Array) -> tuple[Array, Array]:
    """How far elements are apart, and which jump: integers that differ; to, from or between numbers that are
    not finite; from one side of a pole to the other.
    """
    if one.dtype.kind in "iubSUO":
        return np.zeros(one.shape), np.asarray(one != other)
    with np.errstate(all="ignore"):
        x, y = one.astype(np.float64), other.astype(np.float64)
        step = np.abs(x - y)
        large = np.minimum(np.abs(x), np.abs(y)) > eps(one.dtype) ** -0.5
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    pole = large & (np.sign(x) != np.sign(y))
    return np.where(np.isfinite(step), step, 0), pole | (~np.isfinite(step) & ~same)


def _agrees(mine: Any, exact: Any, kind: Any, terms: int) -> bool:
    if isinstance(mine, list):
        return isinstance(exact, list) and outside(mine, exact, kind, terms) is None
    exact = np.asarray(exact)
    return bool(
        np.shape(mine) == exact.shape
        and outside(mine, exact.astype(mine.dtype), kind, terms) is None
    )


def _but_kept(wrong: Any, mine: Any, theirs: Any, exact: Any, terms: int) -> Any:
    """Without elements that are what wider types make of them. Where these alone make a number that fits, it hangs on which
    of the values that overflow were kept wider for a while whether the others are infinite, of either sign, or no number.
    """
    if isinstance(wrong, str) or mine.shape != np.shape(exact) or mine.dtype not in HALVES:
        return wrong
    with np.errstate(all="ignore"):
        rounded = np.asarray(exact).astype(mine.dtype)
    other = outside(mine, rounded, mine.dtype, terms)
    fits, here, there = (np.isfinite(x.astype(np.float64)) for x in (rounded, mine, theirs))
    return wrong & (other if isinstance(other, np.ndarray) else False) & ~(fits & ~here & ~there)


def _shape(value: Any) -> tuple[Any, ...]:
    return tuple(map(_shape, value)) if isinstance(value, list) else np.shape(value)


_CHOICES = frozenset(("ArgMax", "ArgMin", "Hardmax"))
"""Operators that pick the first of equal elements."""
_PACKED = frozenset(("QMoE",))
"""Operators that multiply in fewer bits by weights that are constants, which folding may make them."""
_TYPES = {"to", "dtype", "output_dtype", "stash_type", "softmax_precision"}
"""Attributes that name types of numbers, by default too."""


def referees(case: Case, feeds: Feeds) -> Iterator[list[Array]]:
    """What onnx's own evaluator makes of the model, with floats in double and single precision too, and onnxruntime
    with its optimisations where these move transposes past a choice among equals, or make constants that are packed: it
    ends the process on some others.

    The bodies of functions hold constants of one precision, and do not run in the other. What regions and
    operators of other sets give is taken from onnxruntime: the evaluator has not all of them.
    """
    yield from _optimised(case, feeds, _PACKED)
    if any(map(_is_opaque, case.model.graph.node)):
        try:
            case, feeds = _without_opaque(case, feeds)
        except Exception:
            return
    for dtype in (TensorProto.DOUBLE, TensorProto.FLOAT, None):
        model = case.model if dtype is None else _in_precision(case.model, dtype)
        kind = None if dtype is None else helper.tensor_dtype_to_np_dtype(dtype)
        given = {k: v.astype(kind) if kind and _is_float(v) else v for k, v in feeds.items()}
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield list(ReferenceEvaluator(model, new_ops=[MatMulNBits]).run(None, given))
        except Exception:
            continue
    yield from _optimised(case, feeds, _CHOICES)


def _optimised(case: Case, feeds: Feeds, ops: frozenset[str]) -> Iterator[list[Array]]:
    """What onnxruntime makes with its optimisations of a model that has one of these operators."""
    if not ops.isdisjoint(node.op_type for node in case.model.graph.node):
        with contextlib.suppress(*NOT_RUN):  # what is left to it runs so
            yield Reference(case.model, optimise=True).run(feeds)


class MatMulNBits(OpRun):
    """onnxruntime's operator, for the evaluator."""

    op_domain = "com.microsoft"

    def _run(self, *operands: Any, **sizes: int) -> tuple[Array]:
        return (product_of_few_bits(*operands, **sizes),)


def _is_opaque(node: onnx.NodeProto) -> bool:
    regions = any(attribute.HasField("g") for attribute in node.attribute)
    return regions or (bool(node.domain) and node.op_type != MatMulNBits.__name__)


def _without_opaque(case: Case, feeds: Feeds) -> tuple[Case, Feeds]:
    """The model with results of opaque nodes as inputs, and what onnxruntime computes for them."""
    model, whole = onnx.ModelProto(), onnx.ModelProto()
    model.CopyFrom(case.model)
    whole.CopyFrom(case.model)
    typed = inferred(model)
    infos = {info.name: info for info in (*typed.graph.value_info, *typed.graph.output)}
    nodes = list(whole.graph.node)
    left = [node for node in nodes if not _is_opaque(node)]
    names = {name for node in nodes if node not in left for name in node.output if name in infos}
    del whole.graph.output[:], model.graph.node[:]
    whole.graph.output.extend(infos[name] for name in sorted(names))
    values = dict(zip(sorted(names), Reference(whole).run(feeds), strict=True))
    for name, value in values.items():
        port = infos[name]
        if isinstance(value, np.ndarray):
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            port = helper.make_tensor_value_info(name, kind, None)
        model.graph.input.append(port)
    model.graph.node.extend(left)
    return replace(case, model=model), {**feeds, **values}


def _is_float(array: Any) -> bool:
    if not isinstance(array, np.ndarray):
        return False
    return array.dtype == BFLOAT16 or array.dtype.kind == "f"


def _in_precision(model: onnx.ModelProto, dtype: int) -> onnx.ModelProto:
    """The model with one type for all its floats."""
    others = set(FLOATS) - {dtype}
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for value in (*result.graph.input, *result.graph.output):
        if value.type.tensor_type.elem_type in others:
            value.type.tensor_type.elem_type = dtype
    for tensor in result.graph.initializer:
        if tensor.data_type in others:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(dtype))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for node in result.graph.node:
        version = model.opset_import[0].version
        if node.domain or not onnx.defs.has(node.op_type, version, ""):
            continue
        schema = onnx.defs.get_schema(node.op_type, version, "")
        named = {attribute.name: attribute for attribute in node.attribute}
        for name in _TYPES & schema.attributes.keys():
            default = schema.attributes[name].default_value
            if named.get(name, default).i not in others:
                continue
            if name in named:
                node.attribute.remove(named[name])
            node.attribute.append(helper.make_attribute(name, dtype))
    return result
