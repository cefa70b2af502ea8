"""The passes on small graphs: what they leave, and that it means the same."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dvm_graph
from dvm_graph.import_ import compute_vendor
from dvm_graph.ir import DType, Graph, Node, Value
from dvm_graph.passes import (
    absorb_views,
    collect_scales,
    eliminate_common,
    eliminate_dead,
    fold_constants,
    simplify,
    sink_concats,
    sink_divisions,
)
from dvm_graph.symbolic import Facts, Symbols
from dvm_graph.symbolic.builder import Builder

Array = np.ndarray[Any, Any]


class Sketch:
    """A graph being built by a test."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.facts = Facts(Symbols())
        self.build = Builder(self.graph, self.facts)

    def input(self, *shape: int | str, dtype: DType = DType.FLOAT32) -> Value:
        dims = tuple(self.facts.symbols.get(d) if isinstance(d, str) else d for d in shape)
        value = Value(self.graph.unique_name("x"), dtype, dims)
        self.graph.inputs.append(value)
        return value

    def number(self, number: float, dtype: DType = DType.FLOAT32) -> Value:
        return self.build.scalar(number, dtype)

    def after_simplify(self, output: Value) -> list[str]:
        self.graph.outputs = [output]
        eliminate_dead(self.graph)
        simplify(self.graph, self.facts)
        return [node.op for node in self.graph.sorted_nodes()]


@pytest.fixture
def sketch() -> Sketch:
    return Sketch()


def test_dead_operators_go(sketch: Sketch) -> None:
    x = sketch.input("s")
    sketch.build.op("neg", sketch.build.op("exp", x))
    kept = sketch.build.op("sin", x)
    sketch.graph.outputs = [kept]
    assert eliminate_dead(sketch.graph)
    assert [node.op for node in sketch.graph.nodes] == ["sin"]
    assert not eliminate_dead(sketch.graph)


def test_equal_operators_are_computed_once(sketch: Sketch) -> None:
    x = sketch.input("s")
    total = sketch.build.op("add", sketch.build.op("exp", x), sketch.build.op("exp", x))
    sketch.graph.outputs = [total]
    assert eliminate_common(sketch.graph)
    assert total.producer is not None
    assert total.producer.inputs[0] is total.producer.inputs[1]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 5000])
def test_equal_constants_are_one(sketch: Sketch, size: int) -> None:
    data = np.arange(size, dtype=np.float32) - 1
    data[-1:] = np.nan
    x, first, second = sketch.input("s", size), data, data.copy()
    weights = [sketch.graph.constant(array) for array in (first, second)]
    parts = [sketch.build.op(op, x, w) for op, w in zip(("add", "mul"), weights, strict=True)]
    sketch.graph.outputs = parts
    assert eliminate_common(sketch.graph)
    kept = [part.producer.inputs[1] for part in parts if part.producer is not None]
    assert kept == [weights[0], weights[0]]
    assert not eliminate_common(sketch.graph)


@pytest.mark.parametrize("at", [0, 1, 2500, 4999])
def test_constants_that_differ_in_a_bit_are_two(sketch: Sketch, at: int) -> None:
    first = np.zeros(5000, np.float32)
    second, third = first.copy(), first.view(np.int32)
    second[at] = -0.0
    x, i = sketch.input("s", 5000), sketch.build.cast(sketch.input("s", 5000), DType.INT32)
    sketch.graph.outputs = [
        sketch.build.op("add", operand, sketch.graph.constant(data))
        for operand, data in ((x, first), (x, second), (x, first.reshape(1, 5000)), (i, third))
    ]
    assert not eliminate_common(sketch.graph)


def test_operators_with_other_attributes_stay(sketch: Sketch) -> None:
    x = sketch.input("s", "t")
    a = sketch.build.op("reduce_sum", x, axes=(0,))
    b = sketch.build.op("reduce_sum", x, axes=(1,))
    sketch.graph.outputs = [a, b]
    assert not eliminate_common(sketch.graph)


def test_constants_fold(sketch: Sketch) -> None:
    weights = sketch.graph.constant(np.arange(200, dtype=np.float32))
    result = sketch.build.op("add", sketch.input("b", 200), sketch.build.op("neg", weights))
    sketch.graph.outputs = [result]
    fold_constants(sketch.graph, sketch.facts, compute_vendor)
    assert [node.op for node in sketch.graph.nodes] == ["add"]
    folded = result.producer.inputs[1]
    np.testing.assert_array_equal(folded.data, -np.arange(200))


VENDOR_OF_CONSTANTS = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[n, 4] x) => (float[n, 4] y)
    <float[4] zeros = {0, 0, 0, 0}, float[3] u = {5, 6, 7}, int64 a = {1}, int64 b = {4}, int64 c = {1},
     int64[2] shape = {3, 1}>
    { r = Range(a, b, c) i = Reshape(r, shape) s = ScatterND(zeros, i, u) t = OP y = Add(x, t) }"""


@pytest.mark.parametrize("op", ["ScatterND(s, i, u)", "Identity(s)", "ScatterND(zeros, i, u)"])
def test_vendor_operators_of_constants_fold(op: str) -> None:
    model = onnx.parser.parse_model(VENDOR_OF_CONSTANTS.replace("OP", op))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (found,) = dvm_graph.optimize(model, strict=True).run({"x": x})
    np.testing.assert_array_equal(found, x + np.array([0, 5, 6, 7], np.float32))


def test_sums_of_the_vendor_are_rounded_where_they_fold() -> None:
    """Translation validation does not take that for another value."""
    generator = np.random.default_rng(3)
    columns = ", ".join(f"{x:.8f}" for x in generator.uniform(-2, 2, 2 * 12 * 9))
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, 3, 1, 1] x) => (float[n, 3, 1, 1] y, float[2, 3, 1, 1] p)
        <float[2, 12, 9] c = {{{columns}}}, int64[2] size = {{4, 4}}, int64[2] block = {{2, 2}},
         int64[1] a = {{0}}, int64[1] b = {{1}}>
        {{ v = Col2Im(c, size, block) p = GlobalAveragePool(v) q = Slice(p, a, b) y = Add(x, q) }}"""
    )
    dvm_graph.optimize(model, check=True)


def test_what_is_drawn_at_random_does_not_fold() -> None:
    model = onnx.parser.parse_model(VENDOR_OF_CONSTANTS.replace("OP", "RandomUniformLike(s)"))
    mine = dvm_graph.optimize(model)
    x = np.zeros((1, 4), np.float32)
    assert not np.array_equal(mine.run({"x": x}), mine.run({"x": x}))


@pytest.mark.parametrize("op", ["RandomNormalLike(d)", "Bernoulli(d)", "ScatterND(d, i, u)"])
def test_what_vendor_operators_read_is_not_kept_whole(op: str, tmp_path: Path) -> None:
    """A number that is expanded stays one, whether what is made of it folds or not."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[1000, 1000] x) => (float[1000, 1000] y, float[1000, 1000] z)
        <float one = {1}, int64[2] shape = {1000, 1000}, int64[1, 2] i = {3, 4}, float[1] u = {5}>
        { d = Expand(one, shape) s = OP y = Add(x, s) z = Mul(x, d) }""".replace("OP", op)
    )
    path = tmp_path / "model.dvm"
    dvm_graph.optimize(model).save(path)
    assert path.stat().st_size < 1e5


def test_an_index_that_is_out_of_range_behind_a_vendor_operator_is_for_the_run() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2] x) => (float[2] y)
        <float one = {1}, int64[1] shape = {5000}, int64[2] k = {1, 9000}, int64[1, 1] i = {0},
         float[1] u = {5}>
        { d = Expand(one, shape) g1 = Gather(d, k) s = ScatterND(g1, i, u) y = Add(x, s) }"""
    )
    mine = dvm_graph.optimize(model)
    with pytest.raises(dvm_graph.ExecutionError, match=r"kernel .* index 9000 is out of range"):
        mine.run({"x": np.zeros(2, np.float32)})


def test_long_chains_of_constants_fold(sketch: Sketch) -> None:
    """Without a call of Python for each link."""
    value = sketch.build.op("broadcast_to", sketch.number(1.0), shape=(70, 70))
    for _ in range(1500):
        value = sketch.build.op("neg", value)
    node = Node("v", "vendor", (value,), (Value("w", DType.FLOAT32, (70, 70)),), {"op": "Det"})
    sketch.graph.add(node)
    sketch.graph.outputs = [node.output]
    assert fold_constants(sketch.graph, sketch.facts, lambda node: [node.required(0).data])
    np.testing.assert_array_equal(sketch.graph.outputs[0].data, np.ones((70, 70)))


def test_what_the_vendor_refuses_does_not_fold() -> None:
    """An index out of range is for the run to tell, if anybody asks for the result."""
    model = onnx.parser.parse_model(
        VENDOR_OF_CONSTANTS.replace("int64 b = {4}", "int64 b = {9}")
        .replace("int64 c = {1}", "int64 c = {3}")
        .replace("OP", "Identity(s)")
    )
    with pytest.raises(dvm_graph.DvmError):
        dvm_graph.optimize(model).run({"x": np.zeros((1, 4), np.float32)})


def test_transposed_weights_are_not_copied(sketch: Sketch) -> None:
    weights = sketch.graph.constant(np.zeros((300, 200), np.float32))
    turned = sketch.build.op("transpose", weights, perm=(1, 0))
    sketch.graph.outputs = [sketch.build.op("matmul", sketch.input("b", 200), turned)]
    assert not fold_constants(sketch.graph, sketch.facts, compute_vendor)


def test_neutral_operands_go_only_where_exact(sketch: Sketch) -> None:
    x = sketch.input("s")
    build = sketch.build
    assert sketch.after_simplify(build.op("mul", x, sketch.number(1.0))) == []
    assert sketch.after_simplify(build.op("sub", x, sketch.number(0.0))) == []
    assert sketch.after_simplify(build.op("sub", x, sketch.number(-0.0))) == ["sub"]
    assert sketch.after_simplify(build.op("add", x, sketch.number(0.0))) == ["add"]
    assert sketch.after_simplify(build.op("add", x, sketch.number(-0.0))) == []


def test_a_neutral_operand_that_broadcasts_stays(sketch: Sketch) -> None:
    x = sketch.input("s")
    ones = sketch.graph.constant(np.ones((1, 1), np.float32))
    assert sketch.after_simplify(sketch.build.op("mul", x, ones)) == ["mul"]


@pytest.mark.parametrize(("divisor", "left"), [(8.0, "mul"), (3.0, "div"), (0.0, "div")])
def test_only_powers_of_two_become_products(sketch: Sketch, divisor: float, left: str) -> None:
    x = sketch.input("s")
    assert sketch.after_simplify(sketch.build.op("div", x, sketch.number(divisor))) == [left]


def test_only_lossless_casts_are_looked_through(sketch: Sketch) -> None:
    x = sketch.input("s")
    wide = sketch.build.op("cast", x, dtype=DType.FLOAT64)
    assert sketch.after_simplify(sketch.build.op("cast", wide, dtype=DType.FLOAT32)) == []
    half = sketch.build.op("cast", x, dtype=DType.FLOAT16)
    rounded = sketch.build.op("cast", half, dtype=DType.FLOAT32)
    assert sketch.after_simplify(rounded) == ["cast", "cast"]


def test_views_cancel(sketch: Sketch) -> None:
    x = sketch.input("s", "t", 4)
    turned = sketch.build.op("transpose", x, perm=(1, 0, 2))
    assert sketch.after_simplify(sketch.build.op("transpose", turned, perm=(1, 0, 2))) == []


def test_a_transpose_of_units_is_a_reshape(sketch: Sketch) -> None:
    x = sketch.input("s", 1, 4)
    assert sketch.after_simplify(sketch.build.op("transpose", x, perm=(1, 0, 2))) == ["reshape"]


def test_scalar_arithmetic_moves_before_views(sketch: Sketch) -> None:
    x = sketch.input("s", 12)
    split = sketch.build.op("reshape", x, shape=(sketch.facts.symbols.get("s"), 3, 4))
    turned = sketch.build.op("transpose", split, perm=(1, 0, 2))
    scaled = sketch.build.op("mul", turned, sketch.number(3.0))
    assert sketch.after_simplify(scaled) == ["mul", "reshape", "transpose"]


def test_a_broadcast_is_dropped_only_if_another_operand_has_the_extent(sketch: Sketch) -> None:
    s = sketch.facts.symbols.get("s")
    x, y = sketch.input(1, 4), sketch.input("s", 4)
    wide = sketch.build.op("broadcast_to", x, shape=(s, 4))
    assert sketch.after_simplify(sketch.build.op("add", wide, y)) == ["add"]
    alone = sketch.build.op("add", sketch.build.op("broadcast_to", x, shape=(s, 4)), x)
    assert "broadcast_to" in sketch.after_simplify(alone)


def _operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.sorted_nodes()]


def _scaled_product(
    sketch: Sketch, computed: bool, factors: tuple[float, float], dtype: DType = DType.FLOAT32
) -> Value:
    q, k = sketch.input("b", "s", 8, dtype=dtype), sketch.input("b", "t", 8, dtype=dtype)
    build = sketch.build
    if computed:
        q = build.exp(q)
    q, k = (
        build.mul(x, sketch.number(f, dtype)) if f != 1 else x
        for x, f in zip((q, k), factors, strict=True)
    )
    sketch.graph.outputs = [build.matmul(q, build.transpose(k, (0, 2, 1)))]
    return sketch.graph.outputs[0]


def test_factors_go_to_the_operand_that_is_computed(sketch: Sketch) -> None:
    _scaled_product(sketch, True, (0.5, 0.25))
    assert collect_scales(sketch.graph, sketch.facts)
    assert sorted(_operators(sketch.graph)) == ["exp", "matmul", "mul", "transpose"]
    product = sketch.graph.outputs[0].producer
    assert product is not None and product.op == "matmul"
    scale = product.inputs[0].producer
    assert scale is not None and scale.op == "mul"
    assert scale.inputs[1].data == 0.125
    assert not collect_scales(sketch.graph, sketch.facts)


@pytest.mark.parametrize("factors", [(0.5, 0.25), (0.125, 1), (1, 0.125)])
def test_factors_go_behind_a_product_of_what_is_in_memory(
    sketch: Sketch, factors: tuple[float, float]
) -> None:
    _scaled_product(sketch, False, factors)
    assert collect_scales(sketch.graph, sketch.facts)
    assert _operators(sketch.graph) == ["transpose", "matmul", "mul"]
    scale = sketch.graph.outputs[0].producer
    assert scale is not None
    assert scale.inputs[1].data == 0.125


@pytest.mark.parametrize(
    ("computed", "factors", "dtype"),
    [
        (True, (0.5, 1), DType.FLOAT32),  # part of what computes it
        (False, (0.5, 0.5), DType.FLOAT16),  # could overflow
        (False, (1e9, 1e-9), DType.FLOAT32),
        (False, (0.0, 1), DType.FLOAT32),
        (False, (float("inf"), 1), DType.FLOAT32),
    ],
)
def test_factors_that_stay(
    sketch: Sketch, computed: bool, factors: tuple[float, float], dtype: DType
) -> None:
    _scaled_product(sketch, computed, factors, dtype)
    assert not collect_scales(sketch.graph, sketch.facts)


def test_a_scaled_operand_that_others_use_stays(sketch: Sketch) -> None:
    product = _scaled_product(sketch, False, (0.5, 1))
    assert product.producer is not None
    sketch.graph.outputs.append(product.producer.inputs[0])
    assert not collect_scales(sketch.graph, sketch.facts)


def _mixed_by_softmax(
    sketch: Sketch,
    keys: int | str = "t",
    columns: int | str = 8,
    guard: float | None = None,
    axis: int = 2,
    centred: bool = True,
    dtype: DType = DType.FLOAT32,
) -> Value:
    """matmul(softmax(x), v); returns the softmax."""
    build = sketch.build
    x, v = sketch.input("b", "s", keys, dtype=dtype), sketch.input("b", keys, columns, dtype=dtype)
    powers = build.exp(build.sub(x, build.reduce_max(x, (axis,))) if centred else x)
    softmax = build.div(powers, build.reduce_sum(powers, (axis,)))
    weights = softmax
    if guard is not None:
        weights = build.select(build.isnan(softmax), sketch.number(guard, dtype), softmax)
    sketch.graph.outputs = [build.matmul(weights, v)]
    return softmax


@pytest.mark.parametrize(("keys", "columns"), [("t", 8), (9, 8), ("t", "t")])
def test_divisions_sink_behind_products(
    sketch: Sketch, keys: int | str, columns: int | str
) -> None:
    _mixed_by_softmax(sketch, keys, columns)
    assert sink_divisions(sketch.graph, sketch.facts)
    assert not sink_divisions(sketch.graph, sketch.facts)
    scale = sketch.graph.outputs[0].producer
    assert scale is not None and scale.op == "mul"
    product, factor = (value.producer for value in scale.inputs)
    assert product is not None and product.op == "matmul"
    assert product.inputs[0].producer.op == "exp"
    assert factor is not None and factor.output.shape[-1] == 1
    assert "div" not in _operators(sketch.graph)


@pytest.mark.parametrize("guard", [0.0, -0.0])
def test_guards_against_rows_of_nan_sink_too(sketch: Sketch, guard: float) -> None:
    _mixed_by_softmax(sketch, guard=guard)
    assert sink_divisions(sketch.graph, sketch.facts)
    select = sketch.graph.outputs[0].producer
    assert select is not None and select.op == "select"
    assert select.inputs[0].producer.inputs[0].producer.op == "reduce_sum"
    assert "div" not in _operators(sketch.graph)


@pytest.mark.parametrize(
    "made",
    [
        {"keys": 8},  # as many elements in the result
        {"columns": "c"},  # maybe more
        {"guard": 1.0},  # adds up what v holds
    ],
    ids=str,
)
def test_divisions_before_products_are_one_for_each_row(
    sketch: Sketch, made: dict[str, Any]
) -> None:
    _mixed_by_softmax(sketch, **made)
    assert sink_divisions(sketch.graph, sketch.facts)
    product = sketch.graph.outputs[0].producer
    assert product is not None and product.op == "matmul"
    operators = _operators(sketch.graph)
    assert "div" not in operators and operators.count("reciprocal") == 1
    (once,) = [node for node in sketch.graph.nodes if node.op == "reciprocal"]
    assert once.output.shape is not None and once.output.shape[-1] == 1


@pytest.mark.parametrize(
    "made",
    [
        {"axis": 1},  # no number for each row
        {"centred": False},  # could overflow
        {"dtype": DType.FLOAT16},
    ],
    ids=str,
)
def test_divisions_that_stay(sketch: Sketch, made: dict[str, Any]) -> None:
    _mixed_by_softmax(sketch, **made)
    assert not sink_divisions(sketch.graph, sketch.facts)


@pytest.mark.parametrize("guard", [None, 0.0])
def test_divisions_whose_result_others_use_do_not_sink(sketch: Sketch, guard: float | None) -> None:
    softmax = _mixed_by_softmax(sketch, guard=guard)
    sketch.graph.outputs.append(softmax)
    assert sink_divisions(sketch.graph, sketch.facts)
    product, quotient = (value.producer for value in sketch.graph.outputs)
    assert product is not None and product.op == "matmul"
    assert quotient is not None and quotient.op == "mul"


def _rotated(sketch: Sketch, x: Value, axis: int = 1) -> Value:
    """Concat of the negated second half and the first half."""
    parts = []
    for start in (4, 0):
        starts, sizes = [0] * x.rank, list(x.shape or ())
        starts[axis], sizes[axis] = start, 4
        parts.append(sketch.build.slice(x, starts, sizes))
    return sketch.build.concat([sketch.build.neg(parts[0]), parts[1]], axis)


def test_a_concat_sinks_through_arithmetic_and_views(sketch: Sketch) -> None:
    x, angle = sketch.input("s", 8), sketch.input("s", 4)
    build = sketch.build
    sine = build.sin(build.concat([angle, angle], 1))
    turned = build.add(x, build.mul(_rotated(sketch, x), sine))
    s = sketch.facts.symbols.get("s")
    result = build.transpose(build.reshape(turned, (1, s, 8)), (2, 1, 0))
    sketch.graph.outputs = [result]
    assert sink_concats(sketch.graph, sketch.facts)
    (concat,) = [node for node in sketch.graph.nodes if node.op == "concat"]
    assert sketch.graph.outputs == [concat.output]
    assert concat.attrs["axis"] == 0
    assert concat.output.shape == (8, s, 1)
    ops = _operators(sketch.graph)
    assert (ops.count("mul"), ops.count("add"), ops.count("sin")) == (2, 2, 2)


def test_a_concat_stays_before_what_needs_the_whole(sketch: Sketch) -> None:
    x = sketch.input("s", 8)
    build = sketch.build
    whole = _rotated(sketch, x)
    for user in (
        build.reduce_sum(whole, (1,)),
        build.matmul(whole, sketch.input(8, 3)),
        build.reshape(whole, (sketch.facts.symbols.get("s") * 8,)),
        build.add(whole, build.exp(sketch.input("s", 8))),  # would have to be stored and cut
    ):
        sketch.graph.outputs = [user]
        eliminate_dead(sketch.graph)
        assert not sink_concats(sketch.graph, sketch.facts)
        whole = _rotated(sketch, x)


def test_a_concat_that_others_need_whole_stays(sketch: Sketch) -> None:
    whole = _rotated(sketch, sketch.input("s", 8))
    sketch.graph.outputs = [whole, sketch.build.exp(whole)]
    assert not sink_concats(sketch.graph, sketch.facts)


def test_a_slice_of_a_transpose_is_one_view(sketch: Sketch) -> None:
    x = sketch.input(4, 6)
    turned = sketch.build.op("transpose", x, perm=(1, 0))
    part = sketch.build.op("slice", turned, starts=(1, 0), sizes=(2, 4), steps=(2, 1))
    sketch.graph.outputs = [part]
    assert absorb_views(sketch.graph, sketch.facts)
    assert part.producer is not None
    assert part.producer.inputs == (x,)
    assert part.producer.attrs == {"shape": (2, 4), "strides": (2, 6), "offset": 1}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_composed_views_read_what_the_chain_reads(data: st.DataObject) -> None:
    sketch = Sketch()
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
    value = sketch.input(*shape)
    whole = np.arange(math.prod(shape), dtype=np.int64)
    want = whole.reshape(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        value, want = _random_view(sketch, value, want, data)
    sketch.graph.outputs = [value]
    absorb_views(sketch.graph, sketch.facts)
    assert all(node.op != "slice" for node in sketch.graph.nodes)
    known: dict[Value, Array] = {sketch.graph.inputs[0]: whole.reshape(shape)}
    for node in sketch.graph.sorted_nodes():
        operand = known[node.inputs[0]]
        known[node.output] = _evaluate(node.op, node.attrs, operand)
    np.testing.assert_array_equal(known[sketch.graph.outputs[0]], want)


def _random_view(
    sketch: Sketch, value: Value, array: Array, data: st.DataObject
) -> tuple[Value, Array]:
    build, shape = sketch.build, array.shape
    match data.draw(st.sampled_from(["transpose", "reshape", "slice", "broadcast_to"])):
        case "transpose":
            perm = tuple(data.draw(st.permutations(range(len(shape)))))
            return build.op("transpose", value, perm=perm), array.transpose(perm)
        case "reshape":
            flat = data.draw(st.sampled_from([(array.size,), (1, array.size), (*shape, 1)]))
            return build.op("reshape", value, shape=flat), array.reshape(flat)
        case "slice":
            starts = tuple(data.draw(st.integers(0, extent - 1)) for extent in shape)
            steps = tuple(data.draw(st.sampled_from([-2, -1, 1, 2])) for _ in shape)
            sizes = tuple(
                len(range(start, extent if step > 0 else -1, step))
                for start, step, extent in zip(starts, steps, shape, strict=True)
            )
            made = build.op("slice", value, starts=starts, steps=steps, sizes=sizes)
            return made, _slice(array, starts, steps, sizes)
    wide = (2, *(3 if extent == 1 else extent for extent in shape))
    return build.op("broadcast_to", value, shape=wide), np.broadcast_to(array, wide)


def _slice(array: Array, starts: Any, steps: Any, sizes: Any) -> Array:
    index = [
        start + step * np.arange(size)
        for start, step, size in zip(starts, steps, sizes, strict=True)
    ]
    return array[np.ix_(*index)]


def _evaluate(op: str, attrs: dict[str, Any], array: Array) -> Array:
    match op:
        case "transpose":
            return array.transpose(attrs["perm"])
        case "reshape":
            return array.reshape(attrs["shape"])
        case "broadcast_to":
            return np.broadcast_to(array, attrs["shape"])
    flat = np.ascontiguousarray(array).reshape(-1)
    index = np.full(attrs["shape"], attrs["offset"], np.int64)
    for axis, (extent, stride) in enumerate(zip(attrs["shape"], attrs["strides"], strict=True)):
        reach = np.arange(extent) * stride
        index += reach.reshape([-1 if a == axis else 1 for a in range(len(attrs["shape"]))])
    assert not index.size or (index.min() >= 0 and index.max() < flat.size)
    return flat[index]


def test_what_two_choices_share_is_computed_once(sketch: Sketch) -> None:
    b = sketch.build
    condition, x = sketch.input(dtype=DType.BOOL), sketch.input("s", "t")
    taken, other = (b.op("mul", x, sketch.number(n)) for n in (2.0, 4.0))
    operators = sketch.after_simplify(b.op("select", condition, taken, other))
    assert operators == ["select", "mul"]
    scale = sketch.graph.outputs[0].producer.inputs[1]
    assert scale is not None and scale.shape == ()


@pytest.mark.parametrize("case", ["two differ", "other operators", "used elsewhere", "traps"])
def test_choices_that_stay(sketch: Sketch, case: str) -> None:
    b = sketch.build
    condition, x = sketch.input(dtype=DType.BOOL), sketch.input("s")
    y = sketch.input("s")
    first, second = b.op("mul", x, sketch.number(2.0)), b.op("mul", x, sketch.number(4.0))
    if case == "two differ":
        second = b.op("mul", y, sketch.number(4.0))
    elif case == "other operators":
        second = b.op("add", x, sketch.number(4.0))
    elif case == "traps":
        i, j = sketch.input("s", dtype=DType.INT64), sketch.input("s", dtype=DType.INT64)
        first, second = (b.op("check_index", v, limit=9) for v in (i, j))
    output = b.op("select", condition, first, second)
    if case == "used elsewhere":
        output = b.op("add", output, first)
    operators = sketch.after_simplify(output)
    assert operators.index("select") >= 2


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow"])
@pytest.mark.parametrize("number", [0.0, 1.0, 2.0])
def test_constants_of_higher_rank_keep_it(op: str, number: float) -> None:
    """Whatever stands for an operator has its shape."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float x) => (float[1,1,1] y)'
        f" <float[1,1,1] c = {{{number}}}> {{ y = {op}(x, c) }}"
    )
    (y,) = dvm_graph.optimize(model).run({"x": np.float32(-2)})
    with np.errstate(all="ignore"):
        function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Pow": np.power}
        exact = function.get(op, np.divide)(np.float32(-2), np.full((1, 1, 1), number, np.float32))
    np.testing.assert_array_equal(y, exact)
