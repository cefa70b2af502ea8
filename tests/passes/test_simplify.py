"""Exact rewrites, and what they leave alone."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import dvm_graph
from dvm_graph.import_ import compute_vendor
from dvm_graph.ir import DType
from dvm_graph.passes import (
    fold_constants,
)
from tests.passes.sketch import Sketch


def test_transposed_weights_are_not_copied(sketch: Sketch) -> None:
    weights = sketch.graph.constant(np.zeros((300, 200), np.float32))
    turned = sketch.build.op("transpose", weights, perm=(1, 0))
    sketch.graph.outputs = [sketch.build.op("matmul", sketch.input("b", 200), turned)]
    assert not fold_constants(sketch.graph, compute_vendor)


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
