"""Chains of views are one view that reads the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dvm_graph.ir import Value
from dvm_graph.passes import (
    absorb_views,
)
from tests.passes.sketch import Sketch

Array = np.ndarray[Any, Any]


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
