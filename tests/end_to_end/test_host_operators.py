"""Operators that the host carries out, against onnxruntime bit by bit, and what lies around them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

import dvm_graph
from dvm_graph.errors import DvmError, InputError, ShapeError
from tests.decompose.reference import session

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Any]

ONNX_TYPES = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "int8": np.int8, "int16": np.int16,
    "int32": np.int32, "int64": np.int64, "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32,
    "uint64": np.uint64, "bool": np.bool_, "bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip
RUN_BY_ONNXRUNTIME = {
    "NonZero": "float float16 int32 int64 uint8 bool",
    "Compress": "float float16 double int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool",
    "TopK": "float float16 double int8 int16 int32 int64 uint8",
    "Unique": "float float16 double int8 int64",
    "CumSum": "float double int32 int64",
}
SHAPES = ((0,), (1,), (7,), (40,), (0, 3), (3, 0), (4, 6), (3, 1), (2, 3, 5), (1, 2, 2, 3))


def _model(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')


def _drawn(generator: np.random.Generator, kind: str, shape: Sequence[int]) -> Array:
    """Few different numbers, so that many are equal; of floats zeros of both signs and infinities."""
    dtype = np.dtype(ONNX_TYPES[kind])
    if kind == "bool":
        return np.asarray(generator.random(shape) < 0.5)
    x = generator.integers(-3 if dtype.kind != "u" else 0, 4, shape).astype(dtype)
    if dtype.kind == "f":
        x = np.where(generator.random(shape) < 0.2, dtype.type(-0.0), x)
        x = np.where(generator.random(shape) < 0.1, dtype.type(-np.inf), x)
        x = np.where(generator.random(shape) < 0.1, dtype.type(np.inf), x)
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        x = np.where(generator.random(shape) < 0.1, dtype.type(info.max), x)
        x = np.where(generator.random(shape) < 0.1, dtype.type(info.min), x)
    return np.asarray(x, dtype)


def _assert_equal(mine: Sequence[Array], wanted: Sequence[Array]) -> None:
    for a, b in zip(mine, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes(), f"{a}\n{b}"


def _check(model: onnx.ModelProto, *feeds: Feeds, **options: Any) -> dvm_graph.Model:
    """Equal to onnxruntime for all feeds, one behind the other, without vendor operators."""
    mine, reference = dvm_graph.optimize(model, strict=True, **options), session(model)
    for given in feeds:
        _assert_equal(mine.run(given), reference.run(None, dict(given)))
    return mine


def _axes(rank: int) -> str:
    return ", ".join("abcdef"[:rank])


def _signature(op: str, kind: str, rank: int, attributes: str) -> str:
    """A model of one node, with all its results."""
    attributes = f"<{attributes}>" if attributes else ""
    x, wide = f"{kind}[{_axes(rank)}] x", f"{kind}[{', '.join('pqrstu'[:rank])}] y"
    if op == "NonZero":
        return f"g ({x}) => (int64[i, j] y) {{ y = NonZero(x) }}"
    if op == "Compress":
        y = wide if attributes else f"{kind}[p] y"
        return f"g ({x}, bool[z] c) => ({y}) {{ y = Compress{attributes}(x, c) }}"
    if op == "TopK":
        n = f"int64[{', '.join('pqrstu'[:rank])}] n"
        return f"g ({x}, int64[1] k) => ({wide}, {n}) {{ y, n = TopK{attributes}(x, k) }}"
    y = wide if "axis" in attributes else f"{kind}[p] y"
    rest = "int64[u1] i, int64[u2] v, int64[u3] n"
    return f"g ({x}) => ({y}, {rest}) {{ y, i, v, n = Unique{attributes}(x) }}"


@pytest.mark.parametrize("kind", RUN_BY_ONNXRUNTIME["NonZero"].split())
def test_positions_of_what_is_not_zero(kind: str) -> None:
    generator = np.random.default_rng(1)
    for shape in ((), *SHAPES):
        model = _model(_signature("NonZero", kind, len(shape), "").replace("[]", ""))
        x = _drawn(generator, kind, shape)
        _check(model, *({"x": a} for a in (x, np.zeros_like(x), np.ones_like(x))))


@pytest.mark.parametrize("kind", RUN_BY_ONNXRUNTIME["Compress"].split())
def test_kept_entries(kind: str) -> None:
    generator = np.random.default_rng(2)
    for shape in SHAPES:
        for axis in (None, *range(-len(shape), len(shape), 2)):
            model = _model(
                _signature("Compress", kind, len(shape), "" if axis is None else f"axis = {axis}")
            )
            extent = math.prod(shape) if axis is None else shape[axis]
            x = _drawn(generator, kind, shape)
            flags = (
                generator.random(extent) < 0.5,
                np.ones(extent, bool),
                np.ones(extent // 2, bool),
            )
            _check(model, *({"x": x, "c": c} for c in flags))


@pytest.mark.parametrize("kind", RUN_BY_ONNXRUNTIME["Unique"].split())
@pytest.mark.parametrize("ordered", [0, 1])
def test_entries_that_differ(kind: str, ordered: int) -> None:
    generator = np.random.default_rng(3)
    for shape in SHAPES:
        for axis in (None, *range(-len(shape), len(shape))):
            if axis is not None and 0 in shape:
                continue  # below
            where = "" if axis is None else f", axis = {axis}"
            model = _model(_signature("Unique", kind, len(shape), f"sorted = {ordered}{where}"))
            _check(model, *({"x": _drawn(generator, kind, shape)} for _ in range(2)))


@pytest.mark.parametrize("kind", RUN_BY_ONNXRUNTIME["TopK"].split())
@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("largest", [0, 1])
def test_largest_and_smallest(kind: str, largest: int, ordered: int) -> None:
    generator = np.random.default_rng(4)
    for shape in (*SHAPES, (3, 300), (300, 3), (2, 90, 20)):
        for axis in range(-len(shape), len(shape), 2):
            attributes = f"axis = {axis}, largest = {largest}, sorted = {ordered}"
            model = _model(_signature("TopK", kind, len(shape), attributes))
            extent, x = shape[axis], _drawn(generator, kind, shape)
            counts = {k for k in (0, 1, 2, 3, 5, 16, 17, extent - 1, extent) if 0 <= k <= extent}
            _check(model, *({"x": x, "k": np.array([k])} for k in sorted(counts)))


@pytest.mark.parametrize("kind", RUN_BY_ONNXRUNTIME["CumSum"].split())
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_sums_of_those_before(kind: str, exclusive: int, reverse: int) -> None:
    generator = np.random.default_rng(5)
    for rank in (1, 3):
        shapes = [s for s in (*SHAPES, (17, 33, 1), (2, 40, 1100), (40, 1, 3)) if len(s) == rank]
        for axis in range(rank):
            signature = f"g ({kind}[{_axes(rank)}] x) => ({kind}[{_axes(rank)}] y)"
            attributes = f"exclusive = {exclusive}, reverse = {reverse}"
            body = f"<int64 k = {{{axis}}}> {{ y = CumSum<{attributes}>(x, k) }}"
            drawn = [_drawn(generator, kind, shape) for shape in shapes]
            mine = _check(_model(f"{signature} {body}"), *({"x": x} for x in drawn))
            assert "carried out by the host" in str(mine.report())


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_rows_are_shared_among_cores(cores: int) -> None:
    """More elements than one of them goes over at a time, and what does not come out even."""
    generator = np.random.default_rng(21)
    for shape in ((1000, 37), (70, 300), (3, 9000), (5, 300, 70), (1, 20000), (4, 0, 9000)):
        axes = _axes(len(shape))
        for axis in range(len(shape)):
            feeds = {"x": _drawn(generator, "float", shape)}
            body = f"<int64 k = {{{axis}}}> {{ y = CumSum(x, k) }}"
            sums = _model(f"g (float[{axes}] x) => (float[{axes}] y) {body}")
            best = _model(_signature("TopK", "float", len(shape), f"axis = {axis}"))
            count = {"k": np.array([min(7, shape[axis])])}
            for model, given in ((sums, feeds), (best, feeds | count)):
                mine = dvm_graph.optimize(model, strict=True, cores=cores)
                _assert_equal(mine.run(given), session(model).run(None, given))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_sums_of_16_bits_round_once(kind: str) -> None:
    """onnxruntime has none: each is that of the numbers as floats."""
    x = np.random.default_rng(6).standard_normal((3, 50)).astype(ONNX_TYPES[kind])
    model = _model(
        f"g ({kind}[a, b] x) => ({kind}[a, b] y) <int64 k = {{1}}> {{ y = CumSum(x, k) }}"
    )
    (y,) = dvm_graph.optimize(model, strict=True).run({"x": x})
    wide = np.add.accumulate(x.astype(np.float32), axis=1, dtype=np.float32)
    np.testing.assert_array_equal(y, wide.astype(x.dtype))


def test_sums_of_a_type_that_onnxruntime_lacks() -> None:
    x = np.random.default_rng(8).integers(0, 1 << 32, (3, 5000), np.uint32)
    model = _model(
        "g (uint32[a, 5000] x) => (uint32[a, 5000] y) <int64 k = {1}> { y = CumSum(x, k) }"
    )
    (y,) = dvm_graph.optimize(model, strict=True).run({"x": x})
    np.testing.assert_array_equal(y, np.cumsum(x, axis=1, dtype=np.uint32))


def test_products_of_those_before() -> None:
    x = np.random.default_rng(7).integers(-3, 4, (3, 50))
    model = _model(
        "g (int64[a, b] x) => (int64[a, b] y) <int64 k = {1}> { y = CumProd(x, k) }", opset=26
    )
    (y,) = dvm_graph.optimize(model, strict=True).run({"x": x})
    np.testing.assert_array_equal(y, np.cumprod(x, axis=1))


@pytest.mark.parametrize("kind", ["float", "double", "float16"])
@pytest.mark.parametrize("largest", [0, 1])
def test_not_a_number_is_the_largest(kind: str, largest: int) -> None:
    generator = np.random.default_rng(5)
    model = _model(_signature("TopK", kind, 2, f"largest = {largest}"))
    for share, extent in itertools.product((0.1, 0.6, 1), (1, 9, 200)):
        x = _drawn(generator, kind, (3, extent))
        x[generator.random(x.shape) < share] = np.nan
        x.view(f"i{x.itemsize}")[0] |= np.array(
            1 << (8 * x.itemsize - 2), f"i{x.itemsize}"
        )  # payloads
        _check(model, *({"x": x, "k": np.array([k])} for k in {1, extent // 2, extent}))


def test_known_k_and_numbers_in_between() -> None:
    """Its results have the extent that k says: nothing is to be bound."""
    model = _model(
        """g (float[n, m] x, float[n, 5] w) => (float[n, 5] y, int64[n, 5] i)
        <int64[1] k = {5}> { e = Neg(x) v, i = TopK(e, k) y = Mul(v, w) }"""
    )
    generator = np.random.default_rng(6)
    feeds = [
        {"x": _drawn(generator, "float", (n, m)), "w": np.ones((n, 5), np.float32)}
        for n, m in ((1, 5), (3, 40), (2, 1000))
    ]
    mine = _check(model, *feeds)
    with pytest.raises(ShapeError, match=r"k of TopK .* is 5, but axis 1 has 4 elements"):
        mine.run({"x": np.ones((1, 4), np.float32), "w": np.ones((1, 5), np.float32)})
    _assert_equal(mine.run(feeds[0]), session(model).run(None, feeds[0]))


@pytest.mark.parametrize("kind", ["bfloat16", "uint32", "uint64", "bool"])
def test_types_that_onnxruntime_lacks(kind: str) -> None:
    generator = np.random.default_rng(7)
    x = _drawn(generator, kind, (4, 30))
    exact = x.astype(object if kind == "uint64" else np.float64)
    (found,) = dvm_graph.optimize(_model(_signature("NonZero", kind, 2, "")), strict=True).run(
        {"x": x}
    )
    assert np.array_equal(found, np.stack(np.nonzero(exact)))
    if kind != "bfloat16":
        mine = dvm_graph.optimize(_model(_signature("Unique", kind, 2, "axis = 1")), strict=True)
        wanted = np.unique(exact.astype(np.float64), True, True, True, axis=1)
        for a, b in zip(mine.run({"x": x}), wanted, strict=True):
            assert np.array_equal(a.astype(np.float64), b.reshape(a.shape))
    if kind in ("bool", "bfloat16"):
        return  # which TopK does not take
    mine = dvm_graph.optimize(_model(_signature("TopK", kind, 2, "")), strict=True)
    values, at = mine.run({"x": x, "k": np.array([7])})
    order = np.array([sorted(range(30), key=lambda i: (-row[i], i))[:7] for row in exact])
    assert np.array_equal(at, order)
    assert np.array_equal(values, np.take_along_axis(x, order, 1))


def test_unique_takes_nan_for_equal_to_nan() -> None:
    """As numpy does; onnxruntime takes it for equal to whatever it meets first."""
    x = np.array([2, np.nan, 0.0, -0.0, 1, np.nan, 2], np.float32)
    mine = dvm_graph.optimize(_model(_signature("Unique", "float", 1, "sorted = 1")), strict=True)
    for a, b in zip(mine.run({"x": x}), np.unique(x, True, True, True), strict=True):
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)])
@pytest.mark.parametrize("axis", [0, 1])
def test_unique_slices_without_elements(shape: tuple[int, int], axis: int) -> None:
    """All are equal, as numpy has it; onnxruntime ends the process over some."""
    x = np.ones(shape, np.float32)
    mine = dvm_graph.optimize(
        _model(_signature("Unique", "float", 2, f"axis = {axis}")), strict=True
    )
    y, first, inverse, counts = mine.run({"x": x})
    some = min(shape[axis], 1)
    assert y.shape == tuple(some if i == axis else n for i, n in enumerate(shape))
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == (
        [0] * some,
        [0] * shape[axis],
        [shape[axis]] * some,
    )


# -- boxes

BOXES = """g (float[b, n, 4] boxes, float[b, c, n] scores, int64 most, float overlap, float least) => (int64[k, 3] y) {{
    y = NonMaxSuppression<center_point_box = {center}>(boxes, scores{given}) }}"""
GIVEN = ("", ", most", ", most, overlap", ", most, overlap, least", ', most, "", least')


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("center", [0, 1])
def test_overlapping_boxes(center: int, given: str) -> None:
    """Corners in any order, boxes of no area, equal ones, equal scores, NaN among scores."""
    generator = np.random.default_rng(8)
    model = _model(BOXES.format(center=center, given=given))
    feeds = []
    for batch, classes, count, most in (
        (1, 1, 0, 3),
        (1, 2, 1, 3),
        (2, 3, 30, 5),
        (1, 2, 200, 100),
    ):
        boxes = generator.integers(0, 12, (batch, count, 4)).astype(np.float32) / 4
        scores = generator.integers(0, 9, (batch, classes, count)).astype(np.float32) / 8
        for share in (0, 0.2):
            scores[generator.random(scores.shape) < share] = np.nan
            for overlap, least in ((0, 0.5), (0.3, 0), (1, -1)):
                limits = {"overlap": np.float32(overlap), "least": np.float32(least)}
                given_here = {name: np.array(limit) for name, limit in limits.items()}
                counts = {"most": np.array(most)}
                feeds.append({"boxes": boxes, "scores": scores.copy(), **counts, **given_here})
    feeds.append({**feeds[-1], "most": np.array(0)})
    feeds.append({**feeds[-1], "most": np.array(-1)})
    _check(model, *feeds)


@pytest.mark.parametrize("center", [0, 1])
def test_many_overlapping_boxes(center: int) -> None:
    """All over an image; classes shifted away from each other; with NaN, infinite, huge and turned ones among them."""
    generator = np.random.default_rng(9)
    feeds = []
    for shift, odd, overlap, most in (
        (0, False, 0.5, 2000),
        (0, False, 0, 300),
        (400, False, 0.7, 2000),
        (400, True, 0.3, 2000),
        (0, True, 0, 2000),
    ):
        boxes = generator.random((2, 1500, 4)) * (300, 300, 60, 60)
        if not center:
            boxes[..., 2:] += boxes[..., :2]
        boxes[..., : 2 if center else 4] += shift * generator.integers(0, 9, (2, 1500, 1))
        if odd:
            for value in (np.nan, np.inf, -np.inf, 3e38, -1e30, 0):
                boxes[generator.random(boxes.shape) < 0.03] = value
            boxes[0, ::5] *= -1
        feeds.append(
            {
                "boxes": boxes.astype(np.float32),
                "scores": generator.random((2, 2, 1500), np.float32),
                "most": np.array(most),
                "overlap": np.array(overlap, np.float32),
                "least": np.array(0.1, np.float32),
            }
        )
    _check(_model(BOXES.format(center=center, given=GIVEN[3])), *feeds)


def test_refused_boxes() -> None:
    mine = dvm_graph.optimize(_model(BOXES.format(center=0, given=GIVEN[3])), strict=True)
    feeds = {
        "boxes": np.array([[[0, 0, 1, 1]] * 2], np.float32), "scores": np.ones((1, 1, 2), np.float32),
        "most": np.array(2), "overlap": np.array(0.5, np.float32), "least": np.array(0, np.float32),
    }  # fmt: skip
    with pytest.raises(InputError, match=r"iou_threshold of .* is 1\.5"):
        mine.run({**feeds, "overlap": np.array(1.5, np.float32)})
    with pytest.raises(DvmError, match="scores"):
        mine.run({**feeds, "scores": np.ones((1, 1, 3), np.float32)})
    assert mine.run(feeds)[0].tolist() == [[0, 0, 0]]


# -- what lies around them

AROUND = """g (float[n, m] x) => (int64[a] y, float[k, m] z, float[n, m] u) {
    e = Exp(x) s = Neg(e) q = Relu(x)
    f = ReduceMax<keepdims = 0>(q, last) g = Cast<to = 9>(f)
    r = Compress<axis = 0>(s, g)
    t = Abs(r) v = Sqrt(t) z = Mul(v, r)
    h = NonZero(r) i = Gather<axis = 0>(h, zero) j = Mul(i, i) y = Add(j, i)
    u = Sub(e, x)
}"""
CONSTANTS = "<int64[1] last = {1}, int64 zero = {0}>"


def _around() -> onnx.ModelProto:
    return _model(AROUND.replace(" {", f" {CONSTANTS} {{", 1))


def _rows(n: int, m: int, seed: int = 0) -> dict[str, Array]:
    x = np.random.default_rng(seed).standard_normal((n, m)).astype(np.float32)
    return {"x": np.where(np.arange(n)[:, None] % 2, x, -abs(x)).astype(np.float32)}


def test_neighbours_fuse_over_the_sizes_that_came_out() -> None:
    model = dvm_graph.optimize(_around(), strict=True)
    report = model.report()
    kinds = [
        (part.kind.value, [o.op for o in part.operators if not o.is_view])
        for part in report.subgraphs
    ]
    assert report.vendor_operators == ()
    assert [operators for kind, operators in kinds if kind == "operator"] == [
        ["Compress"],
        ["NonZero"],
    ]
    fused = [set(operators) for kind, operators in kinds if kind != "operator"]
    assert any({"exp", "neg"} <= part for part in fused)
    assert any({"abs", "sqrt", "mul"} <= part for part in fused)
    assert any({"mul", "add"} == part for part in fused)
    for n, m in ((4, 5), (1, 3), (0, 3), (9, 1), (6, 100)):
        mine, wanted = model.run(_rows(n, m)), session(_around()).run(None, _rows(n, m))
        for a, b in zip(mine, wanted, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = dvm_graph.optimize(_around(), strict=True)
    model.save(tmp_path / "around.dvm")
    loaded = dvm_graph.load(tmp_path / "around.dvm")
    for n, m in ((4, 5), (7, 2)):
        _assert_equal(loaded.run(_rows(n, m)), model.run(_rows(n, m)))
    assert str(loaded.report()) == str(model.report())


def test_known_to_check_profile_listing_and_simulation() -> None:
    model = dvm_graph.optimize(_around(), check=True, strict=True)
    profile = model.profile(_rows(6, 5))
    names = [span.name for span in profile.typical.host if span.category == "host"]
    assert [name.split(" ")[0] for name in names] == ["Compress", "NonZero"]
    assert profile.typical.host_operators > 0
    assert "host operators" in str(profile)
    assert any("Compress" in name for name in profile.shares())


BODIES = """g (int64 turns, bool c, float[n] x) => (int64[a] y, float[b] z, int64[p, q] s) {
    y = If (c) <
        then_branch = t () => (int64[k] one) { m = Neg(x) w = NonZero(m) one = Reshape(w, flat) },
        else_branch = e () => (int64[l] two) { r, i = TopK(x, three) two = Neg(i) } >
    go = Constant<value_int = 1>() yes = Cast<to = 9>(go)
    z, s = Loop (turns, yes, x) <
        body = turn (int64 at, bool more, float[d] state) => (bool on, float[f] next, int64[3] best) {
            on = Identity(more) zero = Constant<value_float = 0.0>()
            a = Abs(state) b = Sub(a, tenth) above = Greater(b, zero)
            v, best = TopK(b, three)
            kept = Compress(b, above) next = Concat<axis = 0>(kept, v)
        } >
}"""


def test_inside_bodies() -> None:
    constants = "<int64[1] three = {3}, int64[1] flat = {-1}, float tenth = {0.25}>"
    model = _model(BODIES.replace(" {", f" {constants} {{", 1))
    generator = np.random.default_rng(9)
    feeds = [
        {
            "turns": np.array(turns),
            "c": np.array(c),
            "x": generator.integers(-9, 9, n).astype(np.float32),
        }
        for turns, c, n in ((1, True, 5), (4, False, 12), (9, True, 30), (2, False, 3))
    ]
    mine = _check(model, *feeds)
    assert mine.report().vendor_operators == ()


def test_memory_stays_flat_while_sizes_change() -> None:
    model = dvm_graph.optimize(_around(), strict=True)
    generator = np.random.default_rng(10)
    sizes = generator.integers(0, 40, (600, 2)).tolist()
    for n, m in sizes:
        model.run(_rows(n, m + 1))
    assert model.statistics.arena_bytes < 1 << 20


@pytest.mark.parametrize(
    ("attributes", "given"),
    [
        ("kernel_shape = [2, 2], strides = [2, 2]", None),
        ("kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 0, 1]", None),
        ("kernel_shape = [2, 2], strides = [2, 2]", (2, 3, 15, 16)),
    ],
)
def test_maxima_go_back_to_where_they_were(attributes: str, given: tuple[int, ...] | None) -> None:
    """A shape that is computed in the run may leave room; indices count over it then."""
    shape = ", int64[4] shape" if given else ""
    model = _model(f"""g (float[n, c, h, w] x, int64[n, c, h, w] i{shape}) => (float[a, b, k, l] y) {{
        y = MaxUnpool<{attributes}>(x, i{", shape" if given else ""}) }}""")
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    rng = np.random.default_rng(0)
    for extents in ((2, 3, 7, 5), (1, 1, 2, 3), (0, 3, 4, 4)):
        if given and extents[:2] != given[:2]:
            continue
        x = rng.standard_normal(extents).astype(np.float32)
        places = rng.permutation(4 * x.size)[: x.size] // 4  # the last of equal ones counts
        feeds = {"x": x, "i": places.reshape(extents).astype(np.int64)}
        feeds |= {"shape": np.array(given)} if given else {}
        _assert_equal(mine.run(feeds), reference.run(None, feeds))


@pytest.mark.parametrize("place", [-1, 16])
def test_places_outside_of_the_result_are_refused(place: int) -> None:
    model = _model("""g (float[1, 1, 2, 2] x, int64[1, 1, 2, 2] i) => (float[1, 1, 4, 4] y) {
        y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i) }""")
    places = np.array([0, 5, place, 3]).reshape(1, 1, 2, 2)
    with pytest.raises(dvm_graph.InputError, match=f"index {place} of"):
        dvm_graph.optimize(model).run({"x": np.ones((1, 1, 2, 2), np.float32), "i": places})
