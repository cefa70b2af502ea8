"""Extents that are values of the run, against onnxruntime: what it takes, what it refuses, and what fuses around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import dvm_graph
from dvm_graph.check.bound_extents import compute_extents
from dvm_graph.errors import DvmError, ShapeError

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]

FAR = (2**63 - 1, -(2**63), 2**31 - 1, -(2**31), 2**40)


def _model(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')


def _reference(model: onnx.ModelProto) -> ort.InferenceSession:
    """As it is: onnxruntime's optimiser takes some targets for others."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def _check(text: str, feeds: Iterable[Feeds], least: int = 5, opset: int = 18) -> dvm_graph.Model:
    """Equal to onnxruntime, or refused as there; `least` of the feeds are taken."""
    model = _model(text, opset)
    mine, reference = dvm_graph.optimize(model, strict=True), _reference(model)
    taken = 0
    for given in feeds:
        try:
            wanted = reference.run(None, dict(given))
        except Exception:  # whatever class onnxruntime has for it
            with pytest.raises(DvmError):
                found = mine.run(given)
                print({name: (array.shape, array) for name, array in given.items()}, found)
            continue
        taken += 1
        for a, b in zip(mine.run(given), wanted, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), given
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert taken >= least
    return mine


def _feeds(seed: int, rank: int, count: int = 80) -> Iterable[Feeds]:
    """A matrix, and integers that have to do with its shape or nothing."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        n, m = (int(extent) for extent in generator.choice([0, 1, 2, 3, 4, 6], 2))
        numbers = [n, m, n * m, n * m // 2, 0, 1, 1, -1, 2, 3]
        if generator.random() < 0.2:
            numbers += [2**63 - 1, -(2**63), 2**40, -2]
        x = generator.standard_normal((n, m)).astype(np.float32)
        yield {
            "x": x,
            "t": np.array([numbers[i] for i in generator.integers(0, len(numbers), rank)]),
        }


TARGETS = {
    "Reshape": "g (float[n, m] x, int64[3] t) => (float[a, b, c] y) { e = Exp(x) r = Reshape(e, t) y = Neg(r) }",
    "Reshape, zeros as they are":
        "g (float[n, m] x, int64[2] t) => (float[a, b] y) { y = Reshape<allowzero = 1>(x, t) }",
    "Reshape to one axis":
        "g (float[n, m] x, int64[1] t) => (float[a] y) { e = Exp(x) y = Reshape(e, t) }",
    "Reshape, known in part":
        "g (float[n, m] x, int64[1] t) => (float[a, b, 2] y) <int64[1] two = {2}, int64[1] zero = {0}> "
        "{ u = Concat<axis = 0>(zero, t, two) e = Exp(x) r = Reshape(e, u) y = Relu(r) }",
    "Reshape by an extent, too":
        "g (float[n, m] x, int64[1] t) => (float[a, b, c] y) <int64[1] left = {-1}, int64[1] at = {0}> "
        "{ s = Shape(x) k = Gather<axis = 0>(s, at) u = Concat<axis = 0>(k, t, left) y = Reshape(x, u) }",
    "Reshape of a scalar":
        "g (float[n, m] x, int64[2] t) => (float[a, b] y) { s = ReduceSum<keepdims = 0>(x) y = Reshape(s, t) }",
    "Expand":
        "g (float[n, m] x, int64[3] t) => (float[a, b, c] y) { e = Exp(x) r = Expand(e, t) y = Neg(r) }",
    "Expand, fewer axes":
        "g (float[n, m] x, int64[1] t) => (float[a, b] y) { r = Expand(x, t) y = Add(r, r) }",
    "Expand of a row and a column":
        "g (float[n, m] x, int64[2] t) => (float[a, b] y) <int64[1] one = {1}> "
        "{ s = ReduceSum<keepdims = 1>(x, one) r = Expand(s, t) y = Mul(r, x) }",
    "Tile": "g (float[n, m] x, int64[2] t) => (float[a, b] y) { e = Exp(x) r = Tile(e, t) y = Neg(r) }",
    "Tile, known in part":
        "g (float[n, m] x, int64[1] t) => (float[n, b] y) <int64[1] one = {1}> "
        "{ u = Concat<axis = 0>(one, t) y = Tile(x, u) }",
    "Split":
        "g (float[n, m] x, int64[2] t) => (float[a, m] y, float[b, m] z) "
        "{ e = Exp(x) u, z = Split<axis = 0>(e, t) y = Neg(u) }",
    "Pad": "g (float[n, m] x, int64[4] t) => (float[a, b] y) { e = Exp(x) r = Pad(e, t) y = Neg(r) }",
    "Pad, known in part":
        "g (float[n, m] x, int64[1] t) => (float[a, b] y) <int64[3] none = {0, 2, 0}, float seven = {7}> "
        "{ u = Concat<axis = 0>(none, t) r = Pad(x, u, seven) y = Neg(r) }",
    "Pad of one axis":
        'g (float[n, m] x, int64[2] t) => (float[a, b] y) <int64[1] one = {-1}> { y = Pad(x, t, "", one) }',
    "OneHot":
        "g (float[n, m] x, int64[1] t) => (float[a, c] y) <int64[4] at = {0, 1, -1, 5}, float[2] v = {0, 3}> "
        "{ h = OneHot(at, t, v) y = Neg(h) }",
    "ConstantOfShape":
        "g (float[n, m] x, int64[2] t) => (float[a, b] y) { r = ConstantOfShape(t) c = Cos(r) y = Neg(c) }",
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_targets(name: str) -> None:
    text = TARGETS[name]
    rank = int(text.split("int64[")[1][0])
    few = 1 if "known in part" in name else 5
    model = _check(text, _feeds(len(name), rank), few)
    assert model.report().vendor_operators == ()


BOUNDS = {
    "first axis": "int64[1] a, int64[1] b) => (float[p, m] y) { e = Exp(x) r = Slice(e, a, b) y = Neg(r) }",
    "backwards": "int64[1] a, int64[1] b) => (float[n, q] y) <int64[1] axis = {-1}, int64[1] step = {-2}> "
        "{ e = Exp(x) r = Slice(e, a, b, axis, step) y = Neg(r) }",
    "axes, too": "int64[1] a, int64[1] b, int64[1] c) => (float[p, q] y) "
        "{ e = Exp(x) r = Slice(e, a, b, c) y = Neg(r) }",
    "to a value": "int64[1] b) => (float[n, q] y) <int64[1] axis = {1}, int64[1] zero = {0}> "
        "{ e = Exp(x) r = Slice(e, zero, b, axis) y = Neg(r) }",
    "by steps": "int64[1] b) => (float[n, q] y) <int64[1] axis = {1}, int64[1] start = {-4}, int64[1] step = {3}> "
        "{ e = Exp(x) y = Slice(e, start, b, axis, step) }",
    "from a value": "int64[1] a) => (float[n, q] y) <int64[1] axis = {1}, int64[1] end = {9223372036854775807}> "
        "{ y = Slice(x, a, end, axis) }",
    "32 bits": "int32[1] a, int32[1] b) => (float[p, m] y) { y = Slice(x, a, b) }",
    "by a step that is a value": "int64[1] a, int64[1] b, int64[1] c) => (float[n, q] y) <int64[1] axis = {1}> "
        "{ e = Exp(x) r = Slice(e, a, b, axis, c) y = Neg(r) }",
    "one of two steps": "int64[1] a, int64[1] b, int64[1] c) => (float[p, q] y) <int64[1] two = {2}, "
        "int64[2] axes = {1, 0}> { u = Concat<axis = 0>(a, two) v = Concat<axis = 0>(two, b) "
        "s = Concat<axis = 0>(c, two) r = Slice(x, u, v, axes, s) y = Relu(r) }",
    "both axes": "int64[1] a, int64[1] b) => (float[p, q] y) "
        "<int64[2] axes = {1, 0}, int64[2] steps = {1, -1}, int64[1] two = {2}> "
        "{ u = Concat<axis = 0>(a, two) v = Concat<axis = 0>(two, b) r = Slice(x, u, v, axes, steps) y = Relu(r) }",
    "summed": "int64[1] a, int64[1] b) => (float[p, 1] y) <int64[1] one = {1}> "
        "{ e = Exp(x) r = Slice(e, a, b) s = Neg(r) y = ReduceSum<keepdims = 1>(s, one) }",
    "a product": "int64[1] a, int64[1] b) => (float[n, n] y) <int64[1] axis = {1}> "
        "{ e = Exp(x) r = Slice(e, a, b, axis) t = Transpose(x) u = Slice(t, a, b) y = MatMul(r, u) }",
    "gathered": "int64[1] a, int64[1] b) => (float[k, p] y) <int64[1] axis = {1}> "
        "{ i = NonZero(x) one = Constant<value_int = 0>() j = Gather<axis = 0>(i, one) "
        "  g = Gather<axis = 0>(x, j) r = Slice(g, a, b, axis) y = Neg(r) }",
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name: str) -> None:
    text = f"g (float[n, m] x, {BOUNDS[name]}"
    kind = np.int32 if "int32" in text else np.int64
    generator = np.random.default_rng(len(name))
    far = [number for number in FAR if np.iinfo(kind).min <= number <= np.iinfo(kind).max]
    model = _model(text)
    feeds = []
    for _ in range(100):
        x = generator.standard_normal(generator.integers(0, 6, 2)).astype(np.float32)
        numbers = [*range(-7, 8), *far]
        drawn = {
            other.name: np.array([numbers[generator.integers(0, len(numbers))]], kind)
            for other in model.graph.input[1:]
        }
        if "c" in drawn:
            drawn["c"] = generator.integers(-3, 3, 1)
        feeds.append({"x": x, **drawn})
    assert _check(text, feeds, 40).report().vendor_operators == ()


@pytest.mark.parametrize("kind", ["int16", "int32", "int64", "float", "double"])
def test_ranges(kind: str) -> None:
    behind = "" if kind == "int16" else "z = Mul(y, y)"
    results = f"{kind}[n] y" if kind == "int16" else f"{kind}[n] y, {kind}[n] z"
    text = f"g ({kind} a, {kind} b, {kind} c) => ({results}) {{ y = Range(a, b, c) {behind} }}"
    dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
    numbers: list[Any] = [0, 1, 2, 3, -1, -2, 10, 100, -50]
    if dtype.kind == "f":
        numbers += [0.5, -2.5, 7.25, 0.1, -0.3, np.inf, np.nan, -0.0]
    elif kind == "int16":
        numbers += [2**15 - 1, -(2**15)]
    generator = np.random.default_rng(11)
    feeds = []
    for _ in range(150):
        drawn = (numbers[i] for i in generator.integers(0, len(numbers), 3))
        feeds.append({name: np.array(x, dtype) for name, x in zip("abc", drawn, strict=True)})
    assert _check(text, feeds, 40).report().vendor_operators == ()


@pytest.mark.parametrize("step", ["d", "e"])
def test_ranges_by_steps_of_extents(step: str) -> None:
    """Whose sign is known or not, and which may be 0: bags of embeddings begin at multiples of an extent."""
    text = f"""g (float[a] x, float[b] y, float[c] z) => (int64[n] r) {{
        s = Size(x) l = Size(y) d = Size(z) two = Constant<value_int = 2>() e = Sub(d, two) r = Range(s, l, {step})
    }}"""
    sizes = [
        (0, 12, 3),
        (0, 10, 3),
        (3, 10, 1),
        (10, 3, 1),
        (5, 0, 0),
        (0, 0, 4),
        (9, 0, 2),
        (7, 7, 7),
    ]
    feeds = [
        {name: np.zeros(size, np.float32) for name, size in zip("xyz", drawn, strict=True)}
        for drawn in sizes
    ]
    assert _check(text, feeds).report().vendor_operators == ()


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_ranges_that_no_memory_holds(kind: str) -> None:
    """Even where a kernel stores nothing of them."""
    text = f"g ({kind} a, {kind} b, {kind} c) => ({kind} z) {{ y = Range(a, b, c) z = ReduceSum<keepdims = 0>(y) }}"
    model = dvm_graph.optimize(_model(text), strict=True)
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    feeds = {name: np.array(x, kind) for name, x in (("a", least), ("b", most), ("c", most))}
    assert model.run(feeds)[0] == sum(range(least, most, most))
    if kind == "int64":
        for step in (1, 3, 2**20):
            with pytest.raises(DvmError):
                model.run({**feeds, "c": np.array(step)})
            with pytest.raises(DvmError):
                model.run({"a": feeds["b"], "b": feeds["a"], "c": np.array(-step)})


def test_refusals_say_what_is_wrong() -> None:
    model = dvm_graph.optimize(_model(TARGETS["Reshape"]), strict=True)
    x = np.ones((2, 3), np.float32)
    for target, why in (
        ([2, 2, 2], r"ReshapeExtents .*: \[2, 3\] has other elements than \[2, 2, 2\]"),
        ([-1, -1, 1], r"more than one dim of \[-1, -1, 1\] is -1"),
        ([1, 1, 0], r"a 0 of \[1, 1, 0\] copies no dim"),
        ([1, -2, 3], r"\[1, -2, 3\] is no shape"),
        ([4, -1, 1], r"\[2, 3\] does not divide into \[4, -1, 1\]"),
        ([2**62, 4, 6], "has other elements"),
    ):
        with pytest.raises(ShapeError, match=why):
            model.run({"x": x, "t": np.array(target)})
    assert model.run({"x": x, "t": np.array([0, -1, 1])})[0].shape == (2, 3, 1)


def _fused(model: dvm_graph.Model) -> list[list[str]]:
    """Operators of kernels that compute."""
    report = model.report()
    assert report.vendor_operators == ()
    parts = (
        [operator.op for operator in part.operators if not operator.is_view]
        for part in report.subgraphs
        if part.kind.value not in ("operator", "host")
    )
    return [part for part in parts if part]


CHAINS = {
    "Expand": "e = Exp(x) q = Expand(e, t) c = Cos(q) u = Neg(c) y = ReduceSum<keepdims = 1>(u, one)",
    "Reshape": "e = Exp(x) h = Abs(e) q = Reshape(h, t) c = Cos(q) u = Mul(c, q) y = ReduceSum<keepdims = 1>(u, one)",
    "Slice": "e = Exp(x) h = Abs(e) q = Slice(h, one, t) c = Cos(q) u = Mul(c, q) y = ReduceSum<keepdims = 1>(u, one)",
    "Range": "e = Exp(x) k = Squeeze(t) z = Constant<value_int = 0>() i = Range(z, k, step) f = Cast<to = 1>(i)"
    " c = Cos(f) u = Mul(c, f) y = Add(u, u) step = Constant<value_int = 1>()",
}


@pytest.mark.parametrize("op", CHAINS)
def test_neighbours_fuse_as_over_extents_of_inputs(op: str) -> None:
    """What the same operators are fused to where the extents are those of another input."""
    rank = 2 if op in ("Expand", "Reshape") else 1
    body = f"<int64[1] one = {{1}}> {{ {CHAINS[op]}"
    result = "float[a] y" if op == "Range" else "float[a, b] y"
    values = f"g (float[n, m] x, int64[{rank}] t) => ({result}) {body} }}"
    extents = (
        f"g (float[n, m] x, float[{'c, d'[: 3 * rank - 2]}] s) => ({result}) {body} t = Shape(s) }}"
    )
    bound = dvm_graph.optimize(_model(values), strict=True)
    model = _model(extents)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(
        [nodes[-1], *(node for node in nodes[:-1] if node.op_type == "Constant")]
    )
    model.graph.node.extend(node for node in nodes[:-1] if node.op_type != "Constant")
    fused = _fused(bound)
    assert fused == _fused(dvm_graph.optimize(model, strict=True))
    assert max(map(len, fused)) > 2


def test_neighbours_are_one_kernel() -> None:
    summed = dvm_graph.optimize(_model(f"g (float[n, m] x, {BOUNDS['summed']}"), strict=True)
    assert _fused(summed) == [["exp"], ["neg", "reduce_sum"]]
    text = str(summed.listings({"n": 40, "m": 30, "r_0": 3, "r_1": 27})[-1])
    assert "v_neg_f32" in text and "v_reduce_sum_f32" in text


def test_equal_bounds_give_equal_extents() -> None:
    """Tables cut to a length that the run tells: one kernel, without a broadcast in question."""
    model = dvm_graph.optimize(
        _model(
            """g (float[9, 4] cos, float[9, 4] sin, int64 last) => (float[s, 4] y)
            <int64[1] first = {0}, int64[1] axes = {0}> {
                a = Unsqueeze(last, axes) b = Unsqueeze(last, axes)
                c = Slice(cos, first, a, axes) d = Slice(sin, first, b, axes)
                e = Mul(c, c) y = Sub(e, d)
            }"""
        ),
        strict=True,
    )
    assert _fused(model) == [["mul", "sub"]]
    cos, sin = np.random.default_rng(0).standard_normal((2, 9, 4)).astype(np.float32)
    for last in (0, 1, 5, 9, 20, -3):
        (y,) = model.run({"cos": cos, "sin": sin, "last": np.array(last)})
        np.testing.assert_allclose(y, cos[:last] ** 2 - sin[:last], rtol=1e-6, atol=1e-6)


BODIES = """g (int64 turns, bool c, float[n, m] x, int64[2] t) => (float[a, b] y, float[p, q] z, float[r, u] w) {
    y = If (c) <
        then_branch = one () => (float[k, l] f) { e = Exp(x) v = Reshape(e, t) f = Neg(v) },
        else_branch = two () => (float[k2, l2] h) { s = ReduceSum<keepdims = 1>(x) v = Expand(s, t) h = Neg(v) } >
    go = Constant<value_int = 1>() yes = Cast<to = 9>(go)
    z, w = Loop (turns, yes, x) <
        body = turn (int64 at, bool more, float[d1, d2] state) => (bool on, float[f1, f2] next, float[f3] rows) {
            on = Identity(more) one = Constant<value_int = 1>() axes = Constant<value_ints = [0]>()
            two = Constant<value_int = 2>() next_at = Add(at, one) first = Unsqueeze(next_at, axes)
            high = Constant<value_ints = [100]>()
            e = Neg(state) next = Slice(e, axes, high, axes)
            r = Range(at, next_at, one) q = Cast<to = 1>(r) part = Slice(state, axes, first, axes)
            s = ReduceSum<keepdims = 0>(part) rows = Add(q, s)
        } >
}"""


def test_inside_bodies() -> None:
    generator = np.random.default_rng(9)
    feeds = [
        {
            "turns": np.array(turns), "c": np.array(c), "t": np.array(t),
            "x": generator.standard_normal(shape).astype(np.float32),
        }
        for turns, c, shape, t in (
            (1, True, (4, 6), (3, 8)), (3, False, (1, 5), (2, 5)), (4, True, (2, 2), (1, -1)),
            (2, True, (2, 2), (3, 3)), (5, False, (3, 1), (3, 4)), (5, False, (3, 1), (0, 1)),
        )
    ]  # fmt: skip
    assert _check(BODIES, feeds, 4).report().vendor_operators == ()


PRODUCT = """g (float[n, m] x, float[6, 5] w, int64[2] t, int64[1] a) => (float[p, q] y, float[o] z)
    <int64[1] one = {1}, int64[1] four = {4}> {
    b = Mul(a, four) e = Relu(x) r = Reshape(e, t) d = MatMul(r, w) f = Sigmoid(d) y = Slice(f, a, b, one)
    s = ReduceMax<keepdims = 0>(f, one) h = Gather<axis = 0>(s, a) v = ConstantOfShape(a) c = Cos(v)
    k = ReduceSum<keepdims = 0>(c) z = Add(h, k)
}"""


def test_products_and_gathers_around() -> None:
    generator = np.random.default_rng(3)
    feeds = [
        {
            "x": generator.standard_normal((n, 12)).astype(np.float32),
            "w": generator.standard_normal((6, 5)).astype(np.float32),
            "t": np.array(t),
            "a": np.array([a]),
        }
        for n in (1, 2, 5, 30)
        for t in ((-1, 6), (2 * n, 6), (n, 12), (0, 6))
        for a in (0, 1, 3)
    ]
    _check(PRODUCT, feeds, 10)


def test_extents_that_a_result_behind_mentions() -> None:
    """What a Reshape makes of them mentions them, too, but does not tell them."""
    text = """g (float[m, 1, 1] x, int64[1] t, float[m, 1, k] w, bool c, int64[1] u) => (int64[] p, float[] y) {
      r = Reshape(x, t)
      p = ArgMin(r)
      v = If (c) <
        then_branch = one () => (float[?, 3, 3] a) { a = Abs(r) },
        else_branch = two () => (float[?, 3, 3] b) { b = Add(w, r) }
      >
      q = Reshape(v, u)
      y = Tanh(q)
    }"""
    model, reference = dvm_graph.optimize(_model(text, 8)), _reference(_model(text, 8))
    for k, target in ((1, 0), (1, -1), (4, -1), (3, 3)):
        feeds = {
            "x": np.full((1, 1, 1), 0.5, np.float32),
            "t": np.array([0]),
            "w": np.linspace(-1, 1, k, dtype=np.float32).reshape(1, 1, k),
            "c": np.array(False),
            "u": np.array([target]),
        }
        for got, want in zip(model.run(feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_extents_that_only_a_vendor_operator_on_strings_tells() -> None:
    text = """g (string[n] x, int64[1] t) => (int64[] y) {
      parts, counts = StringSplit<delimiter = ".">(x)
      more = Tile(counts, t)
      y = Neg(more)
    }"""
    model, reference = dvm_graph.optimize(_model(text, 20)), _reference(_model(text, 20))
    for words, times in ((["a.b", "c"], 2), (["a"], 3), (["a.b.c", "", "."], 1)):
        feeds = {"x": np.array(words, object), "t": np.array([times])}
        np.testing.assert_array_equal(model.run(feeds)[0], reference.run(None, feeds)[0])


def test_a_target_below_any_extent_is_none_for_checks() -> None:
    with pytest.raises(ShapeError, match="is no shape"):
        compute_extents("ReshapeExtents", [0], [np.array([2, 3]), np.array([-7])])


def test_saved_checked_and_profiled(tmp_path: Path) -> None:
    text = f"g (float[n, m] x, {BOUNDS['summed']}"
    model = dvm_graph.optimize(_model(text), check=True, strict=True)
    for name in ("Expand", "Reshape", "Split", "Pad", "OneHot"):
        dvm_graph.optimize(_model(TARGETS[name]), check=True, strict=True)
    feeds = {"x": np.ones((5, 4), np.float32), "a": np.array([1]), "b": np.array([4])}
    model.save(tmp_path / "cut.dvm")
    loaded = dvm_graph.load(tmp_path / "cut.dvm")
    np.testing.assert_array_equal(loaded.run(feeds)[0], model.run(feeds)[0])
    names = [s.name for s in model.profile(feeds).typical.host if s.category == "host"]
    assert [name.split(" ")[0] for name in names] == ["SliceExtents"]


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_pads_of_elements_from_elsewhere(mode: str) -> None:
    """By less than there are: beyond that onnxruntime reads other memory, or refuses."""
    text = f"""g (float[n, m] x, int64[4] t) => (float[a, b] y) {{
        e = Exp(x) r = Pad<mode = "{mode}">(e, t) y = Neg(r) }}"""
    generator = np.random.default_rng(5)
    feeds = []
    for _ in range(30):
        shape = generator.integers(2, 6, 2)
        pads = np.array([generator.integers(0, extent) for extent in (*shape, *shape)])
        feeds.append({"x": generator.standard_normal(shape, np.float32), "t": pads})
    assert _check(text, feeds, 30, opset=19).report().vendor_operators == ()


RESIZED = {
    "nearest": 'mode = "nearest"',
    "floor": 'mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"',
    "linear": 'mode = "linear"',
    "corners": 'mode = "linear", coordinate_transformation_mode = "align_corners"',
    "pytorch": 'mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"',
}


@pytest.mark.parametrize("way", RESIZED)
@pytest.mark.parametrize("by", ["sizes", "scales"])
def test_images_resized_as_a_run_says(way: str, by: str) -> None:
    kind, operands = ("int64", '"", "", t') if by == "sizes" else ("float", '"", t')
    text = f"""g (float[n, 3, h, w] x, {kind}[2] t) => (float[n, 3, p, q] y) {{
        e = Exp(x) r = Resize<axes = [2, 3], {RESIZED[way]}>(e, {operands}) y = Neg(r) }}"""
    generator = np.random.default_rng(len(way))
    feeds = []
    for _ in range(40):
        n, h, w = generator.integers(1, 7, 3)
        sizes = generator.integers(1, 12, 2)
        scales = generator.choice([0.3, 0.5, 1, 1.5, 2, 2.7, 3], 2).astype(np.float32)
        x = generator.standard_normal((n, 3, h, w), np.float32)
        feeds.append({"x": x, "t": sizes if by == "sizes" else scales})
    assert _check(text, feeds, 20).report().vendor_operators == ()


def test_an_image_resized_to_that_of_another_shape() -> None:
    """Sizes that are known in part, as exporters write them."""
    text = """g (float[n, c, h, w] x, int64[2] t) => (float[n, c, p, q] y)
        <int64[1] zero = {0}, int64[1] two = {2}> {
            s = Shape(x) b = Slice(s, zero, two) u = Concat<axis = 0>(b, t)
            y = Resize<mode = "linear">(x, "", "", u)
        }"""
    generator = np.random.default_rng(6)
    feeds = [
        {
            "x": generator.standard_normal(generator.integers(1, 6, 4), np.float32),
            "t": generator.integers(1, 9, 2),
        }
        for _ in range(20)
    ]
    assert _check(text, feeds, 20).report().vendor_operators == ()


RESIZES = {
    "Resize by scales": "g (float[n, m] x, int64[2] t) => (float[1, 1, a, b] y) <int64[2] at = {0, 1}> "
        '{ i = Unsqueeze(x, at) c = Cast<to = 1>(t) y = Resize<mode = "nearest", axes = [2, 3]>(i, "", c) }',
}  # fmt: skip
COUNTED = {
    **RESIZES,
    **{
        name: TARGETS[name]
        for name in ("Tile", "Tile, known in part", "Split", "Pad", "Pad, known in part", "Pad of one axis")
    },
    **{name: f"g (float[n, m] x, {bounds}" for name, bounds in BOUNDS.items() if "axis" in bounds},
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_lists_whose_length_follows_from_another_operand(name: str) -> None:
    """As parts of shapes that were cut out at run time have it: nobody says how many elements they have."""
    text = re.sub(r"int64\[\d\] ([abt])(?=[,)])", r"int64[of_\1] \1", COUNTED[name])
    assert text != COUNTED[name]
    model = _model(text)
    generator = np.random.default_rng(len(name))
    usual = int(COUNTED[name].split("int64[")[1][0])
    feeds = []
    for _ in range(60):
        x = generator.standard_normal(generator.integers(1, 6, 2)).astype(np.float32)
        count = usual if generator.random() < 0.8 else int(generator.integers(0, 4))
        small = [*range(-6, 7)] if "Slice" in text else [0, 1, 1, 2, *x.shape]
        drawn = {
            other.name: generator.choice(small, 1 if other.name == "c" else count)
            for other in model.graph.input[1:]
        }
        feeds.append({"x": x, **drawn})
    assert _check(text, feeds, 3).report().vendor_operators == ()


@pytest.mark.parametrize("count", ["of_t", 0])
def test_no_sizes_are_those_of_equal_parts(count: str | int) -> None:
    text = f"g (float[n, m] x, int64[{count}] t) => (float[a, m] y, float[b, m] z) {{ y, z = Split<axis = 0>(x, t) }}"
    none = np.zeros(0, np.int64)
    xs = [np.ones((n, 2), np.float32) * np.arange(n, dtype=np.float32)[:, None] for n in range(5)]
    assert _check(text, [{"x": x, "t": none} for x in xs], 3).report().vendor_operators == ()


def test_nothing_is_repeated_of_an_axis_without_elements() -> None:
    text = 'g (float[n, m] x, int64[4] t) => (float[a, b] y) { y = Pad<mode = "edge">(x, t) }'
    feeds = [
        {"x": np.ones((0, 2), np.float32), "t": np.array(t)} for t in ([0, 1, 0, 0], [1, 0, 0, 0])
    ]
    _check(text, feeds, 1)
