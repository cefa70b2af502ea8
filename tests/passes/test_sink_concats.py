"""Concats move behind what is computed element by element."""

from __future__ import annotations

import numpy as np

from dvm_graph.ir import DType, Value
from dvm_graph.passes import (
    eliminate_dead,
    sink_concats,
)
from tests.passes.sketch import Sketch


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
    ops = sketch.operators()
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


def test_parts_whose_results_are_known_as_dims(sketch: Sketch) -> None:
    """What is made of them is no concat any more: the operand was folded to a constant behind the concat."""
    build, s = sketch.build, sketch.facts.symbols.get("s")
    given = sketch.input(1, dtype=DType.INT64)
    whole = build.concat([given, build.dims((s,))], 0)
    sketch.graph.outputs = [build.mul(whole, sketch.number(2, DType.INT64))]
    assert whole.producer is not None
    three = sketch.graph.constant(np.array([3]))
    sketch.graph.set_inputs(whole.producer, [three, whole.producer.required(1)])
    assert sink_concats(sketch.graph, sketch.facts)
    (node,) = [node for node in sketch.graph.nodes if node.output in sketch.graph.outputs]
    assert node.op == "dims"
    assert node.attrs["elements"] == (6, 2 * s)
