"""Plans of the tiny models and of small graphs against onnxruntime, interpreted with numpy.

This is the whole Python side of the compiler without the C++ core.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from dvm_graph.import_ import partition_model
from dvm_graph.kernels.plan import HostStep, LaunchStep, VendorStep
from dvm_graph.options import Options
from dvm_graph.pipeline import Compiled, compile_model
from models import PROGRAMS, ZOO
from models.feeds import random_feeds
from tests.kernels.reference_plan import run_plan
from tests.models.zoo_dims import EXTENTS, names

Array = np.ndarray[Any, Any]
TINY = Path(__file__).parents[2] / "models" / "tiny"
RECURRENT = {"crnn", "vad"}
MODELS = sorted(
    path.stem
    for path in TINY.glob("*.onnx")
    if path.stem not in {*PROGRAMS, *RECURRENT}
    and (path.stem not in ZOO or not ZOO[path.stem].quantized)
)
"""Quantised ones, which may be off by steps, are compared in tests/end_to_end/test_zoo.py, as are those with an LSTM; these and
those with control flow, in tests/end_to_end/test_programs.py, have loops, which the interpreter of plans does not run."""
GRID = (
    {"batch": 1, "seq": 1, "past_seq": 1, "height": 32, "width": 32, "features": 1},
    {"batch": 3, "seq": 77, "past_seq": 5, "height": 48, "width": 40, "features": 7},
)
HEADER = '<ir_version: 8, opset_import: ["" : 18]>'


def evaluate(compiled: Compiled, feeds: dict[str, Array], force_fallback: bool) -> list[Array]:
    values = {value.name: value for value in compiled.graph.values()}

    def run_call(step: VendorStep | HostStep, arrays: list[Array]) -> list[Array]:
        nodes = step.nodes if isinstance(step, VendorStep) else (step.node,)
        names = [compiled.plan.values[i].name for i in step.inputs]
        results = [compiled.plan.values[i].name for i in step.outputs]
        model = partition_model(
            nodes, [values[name] for name in names], [values[name] for name in results]
        )
        return list(session(model).run(results, dict(zip(names, arrays, strict=True))))

    arrays = [feeds[value.name] for value in compiled.graph.inputs]
    return run_plan(compiled.plan, arrays, run_call, force_fallback)


def session(model: str | bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def assert_same(got: list[Array], want: list[Array]) -> None:
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(
            ours.astype(np.float64), theirs.astype(np.float64), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("name", MODELS)
def test_tiny_model(name: str) -> None:
    path = str(TINY / f"{name}.onnx")
    reference = session(path)
    fused = compile_model(path, Options())
    plain = compile_model(path, Options(fuse=False, stack=False))
    smallest = {dim: min(EXTENTS[dim]) for dim in names(name)} if name in ZOO else {}
    for dims in [smallest] if name in ZOO else GRID:
        feeds = random_feeds(name, dims, seed=1, padded=True)
        want = reference.run(None, feeds)
        assert_same(evaluate(fused, feeds, force_fallback=False), want)
        assert_same(evaluate(fused, feeds, force_fallback=True), want)
        assert_same(evaluate(plain, feeds, force_fallback=False), want)


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[str, list[tuple[Array, ...]]]] = {
    "unknown broadcast is speculated on": (
        "g (float[b,s] x, float[c,s] y) => (float[d,s] z){ a = Relu(x) w = Add(a, y) z = Exp(w) }",
        [
            (floats(3, 4), floats(3, 4)),
            (floats(1, 4), floats(3, 4)),
            (floats(3, 4), floats(1, 4)),
            (floats(0, 4), floats(1, 4)),
            (floats(2, 0), floats(2, 0)),
        ],
    ),
    "the same value twice, and an input as output": (
        "g (float[b,s] x) => (float[b,s] y, float[b,s] z, float[b,s] w)"
        "{ y = Exp(x) z = Identity(y) w = Identity(x) }",
        [(floats(2, 3),), (floats(0, 3),)],
    ),
    "concat of views is stored in place": (
        "g (float[b,s,6] x) => (float[b,12,s] z, float[t] y) <int64[1] m = {-1}>"
        "{ t = Transpose<perm = [0, 2, 1]>(x) e = Exp(x) u = Transpose<perm = [0, 2, 1]>(e)"
        "  z = Concat<axis = 1>(t, u) y = Reshape(u, m) }",
        [(floats(2, 3, 6),), (floats(0, 3, 6),), (floats(1, 1, 6),)],
    ),
    "a transposed sum with itself is no diagonal": (
        "g (float[b,b] x) => (float[b,b] z)"
        "{ e = Exp(x) t = Transpose<perm = [1, 0]>(e) z = Add(e, t) }",
        [(floats(3, 3),), (floats(1, 1),)],
    ),
    "narrow integers wrap between operators": (
        "g (int8[b,s] x) => (int8[b,s] z, uint8[b,s] v, float[b,s] w)"
        "{ j = Add(x, x) k = Mul(j, j) z = Sub(k, x) v = Cast<to = 2>(k) w = Cast<to = 1>(z) }",
        [(np.arange(-120, 120, 10, dtype=np.int8).reshape(4, 6),)],
    ),
    "extremes of nothing are those of narrow integers": (
        "g (int8[n,k] x) => (int8[n] y, int8[n] z, float[n] w) <int64[1] axis = {1}>"
        "{ y = ReduceMax<keepdims = 0>(x, axis) z = ReduceMin<keepdims = 0>(x, axis)"
        "  w = Cast<to = 1>(y) }",
        [(np.zeros((2, 0), np.int8),), (np.arange(-3, 3, dtype=np.int8).reshape(2, 3),)],
    ),
    "around images of bytes is their zero point": (
        "g (uint8[n,2,h,w] x) => (int32[n,2,h,w] y)"
        "<int8[2,1,3,3] f = {-128,5,7,-3,2,127,4,-9,8, 1,-2,3,-4,5,-6,7,-8,9}, uint8 z = {9}>"
        "{ y = ConvInteger<group = 2, pads = [1,1,1,1]>(x, f, z) }",
        [
            (np.arange(40, 160, 4, dtype=np.uint8).reshape(1, 2, 3, 5),),
            (np.full((3, 2, 1, 1), 255, np.uint8),),
            (np.zeros((0, 2, 4, 4), np.uint8),),
        ],
    ),
    "rounding by an explicit cast to half": (
        "g (float[n] x) => (float[n] z) { h = Cast<to = 10>(x) z = Cast<to = 1>(h) }",
        [(floats(50) * 100,)],
    ),
    "a matrix product over an empty axis": (
        "g (float[b,k] x, float[k,n] w) => (float[b,n] z, float[b,n] y)"
        "{ p = MatMul(x, w) z = Softmax<axis = -1>(p) y = Exp(p) }",
        [
            (floats(3, 4), floats(4, 5)),
            (floats(3, 0), floats(0, 5)),
            (floats(300, 7), floats(7, 3)),
            (floats(0, 2), floats(2, 5)),
            (floats(1, 1), floats(1, 1)),
        ],
    ),
    "gathers wrap negative indices": (
        "g (float[b,s,h] x, int64[m] i) => (float[b,m,h] z, float[m,s,h] y)"
        "{ a = Gather<axis = 1>(x, i) z = Exp(a) e = Neg(x) y = Gather<axis = 0>(e, i) }",
        [(floats(3, 4, 5), np.array([0, -1, 2])), (floats(3, 4, 5), np.array([], np.int64))],
    ),
    "slices of transposes with negative steps": (
        "g (float[b,s,h] x) => (float[b,h,t] z)"
        "<int64[1] a = {-1}, int64[1] e = {-1000}, int64[1] axis = {1}, int64[1] step = {-2}>"
        "{ y = Slice(x, a, e, axis, step) t = Transpose<perm = [0, 2, 1]>(y) z = Neg(t) }",
        [(floats(2, 5, 3),), (floats(2, 1, 3),), (floats(1, 4, 1),)],
    ),
    "batched products of transposed operands": (
        "g (float[b,s,6] x, float[b,t,6] y) => (float[b,s,6] z) <int64[4] h = {0, 0, 2, 3},"
        " int64[3] back = {0, 0, 6}>"
        "{ p = Reshape(x, h) q = Transpose<perm = [0, 2, 1, 3]>(p) r = Reshape(y, h)"
        "  k = Transpose<perm = [0, 2, 3, 1]>(r) v = Transpose<perm = [0, 2, 1, 3]>(r)"
        "  s = MatMul(q, k) w = Softmax<axis = -1>(s) c = MatMul(w, v)"
        "  o = Transpose<perm = [0, 2, 1, 3]>(c) z = Reshape(o, back) }",
        [(floats(2, 3, 6), floats(2, 5, 6)), (floats(1, 1, 6), floats(1, 1, 6))],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_small_graph(name: str) -> None:
    text, inputs = CASES[name]
    model = parser.parse_model(f"{HEADER} {text}")
    onnx.checker.check_model(model)
    reference = session(model.SerializeToString())
    for options in (Options(), Options(fuse=False)):
        compiled = compile_model(model, options)
        for arrays in inputs:
            names = (value.name for value in model.graph.input)
            feeds = dict(zip(names, arrays, strict=True))
            want = reference.run(None, feeds)
            assert_same(evaluate(compiled, feeds, force_fallback=False), want)
            assert_same(evaluate(compiled, feeds, force_fallback=True), want)


def test_equal_weights_are_packed_once() -> None:
    weights = np.arange(6000, dtype=np.float32).reshape(100, 60)
    made = []
    for change in (0, 1):
        other = weights.copy()
        other[50, 30] += change
        model = parser.parse_model(
            f"{HEADER} g (float[n,100] x) => (float[n,60] y, float[n,60] z)"
            "{ y = MatMul(x, v) t = Neg(x) z = MatMul(t, w) }"
        )
        for name, data in (("v", weights), ("w", other)):
            model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
        plan = compile_model(model, Options()).plan
        made.append(sum(value.panels is not None for value in plan.values))
    assert made == [1, 2]


def test_gather_iterates_over_its_result_alone() -> None:
    """Not over what it gathers from, too, where that comes through a view."""
    text = (
        "g (float[v,h] x, int64[n] i) => (float[h,n] y)"
        "{ t = Transpose<perm = [1, 0]>(x) r = Gather<axis = 1>(t, i) y = Exp(r) }"
    )
    compiled = compile_model(parser.parse_model(HEADER + text), Options())
    launches = [step for step in compiled.plan.steps if isinstance(step, LaunchStep)]
    (call,) = [call for launch in launches for stage in launch.stages for call in stage]
    assert len(call.plan.extents) == 2
