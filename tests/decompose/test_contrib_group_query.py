"""GroupQueryAttention against onnxruntime, as model builders write it: lengths come from an attention mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dvm_graph
from tests.decompose.evaluate import evaluate
from tests.decompose.reference import Array, decomposed, session, vendor_operators
from tests.tolerances import assert_close

HEADS, SHARED, SIZE = 4, 2, 16
HIDDEN, NARROW = HEADS * SIZE, SHARED * SIZE
_TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "int64": TensorProto.INT64}
_OPERANDS = (
    *("query", "key", "value", "past_key", "past_value", "lengths", "total", "cos", "sin", ""),
    *("bias", "sink", "", "", "q_norm", "k_norm"),
)
CAPACITY = 32
"""Rows of the tables of rotary embeddings."""


@dataclass(frozen=True)
class Grouped:
    """A node, and which of its optional operands it has."""

    label: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    packed: bool = False
    past: bool = True
    tables: bool = False
    bias: bool = False
    sink: bool = False
    norms: bool = False
    dtype: str = "float32"

    def inputs(self) -> dict[str, tuple[int | str, ...]]:
        query = HIDDEN + 2 * NARROW if self.packed else HIDDEN
        inputs: dict[str, tuple[int | str, ...]] = {"mask": ("b", "t"), "query": ("b", "s", query)}
        if not self.packed:
            inputs |= dict.fromkeys(("key", "value"), ("b", "s", NARROW))
        if self.past:
            inputs |= {f"past_{x}": ("b", SHARED, "p", SIZE) for x in ("key", "value")}
        if self.tables:
            inputs |= dict.fromkeys(("cos", "sin"), (CAPACITY, SIZE // 2))
        if self.bias:
            inputs["bias"] = (1, 1, "s", "t")
        if self.sink:
            inputs["sink"] = (HEADS,)
        if self.norms:
            inputs |= dict.fromkeys(("q_norm", "k_norm"), (SIZE,))
        return inputs

    def model(self) -> onnx.ModelProto:
        inputs = self.inputs()
        names = _OPERANDS
        known = {*inputs, "lengths", "total"}
        operands = [name if name in known else "" for name in names]
        while not operands[-1]:
            operands.pop()
        attention = helper.make_node(
            "GroupQueryAttention", operands, ["y", "present_key", "present_value"], name="node",
            domain="com.microsoft", num_heads=HEADS, kv_num_heads=SHARED, **self.attrs,
        )  # fmt: skip
        graph = helper.make_graph(
            [*_LENGTHS, attention],
            "g",
            [
                helper.make_tensor_value_info(name, _TYPES[self.type_of(name)], shape)
                for name, shape in inputs.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in attention.output],
        )
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def type_of(self, name: str) -> str:
        return "int64" if name == "mask" else self.dtype

    def feeds(self, new: int, lengths: Sequence[int]) -> dict[str, Array]:
        """`new` keys for sequences that have these lengths then."""
        generator = np.random.default_rng(new)
        total = max(lengths)
        dims = {"b": len(lengths), "s": new, "t": total, "p": total - new}
        feeds = {
            name: generator.uniform(-2, 2, [dims.get(str(d), d) for d in shape]).astype(self.dtype)
            for name, shape in self.inputs().items()
        }
        feeds["mask"] = (np.arange(total) < np.array(lengths)[:, None]).astype(np.int64)
        return feeds


_LENGTHS = [
    helper.make_node("Constant", [], ["one"], value_ints=[1]),
    helper.make_node("Constant", [], ["axis"], value_int=1),
    helper.make_node("ReduceSum", ["mask", "one"], ["count"], keepdims=0),
    helper.make_node("Sub", ["count", "one"], ["last"]),
    helper.make_node("Cast", ["last"], ["lengths"], to=TensorProto.INT32),
    helper.make_node("Shape", ["mask"], ["shape"]),
    helper.make_node("Gather", ["shape", "axis"], ["width"]),
    helper.make_node("Cast", ["width"], ["total"], to=TensorProto.INT32),
]
ROTARY = {"do_rotary": 1}
CASES = [
    Grouped("plain"),
    Grouped("packed", packed=True),
    Grouped("prompt", past=False),
    Grouped("rotary", ROTARY, tables=True),
    Grouped("rotary-packed", ROTARY, tables=True, packed=True),
    Grouped("rotary-interleaved", {**ROTARY, "rotary_interleaved": 1}, tables=True),
    Grouped("rotary-prompt", ROTARY, tables=True, past=False),
    Grouped("scale", {"scale": 0.25}),
    Grouped("softcap", {"softcap": 5.0}),
    Grouped("window", {"local_window_size": 2}),
    Grouped("window-softcap", {"local_window_size": 3, "softcap": 4.0}),
    Grouped("bias", bias=True),
    Grouped("smooth", {"smooth_softmax": 1}),
    Grouped("sink", sink=True),
    Grouped("norms", {"qk_norm_epsilon": 0.01}, norms=True),
    Grouped("norms-rotary", {**ROTARY, "k_norm_epsilon": 0.1}, norms=True, tables=True),
    Grouped("f16", ROTARY, tables=True, dtype="float16"),
]
RUNS = [(5, (5, 5)), (1, (6, 6)), (1, (9,)), (3, (7,)), (1, (4, 9, 1))]
"""A prompt, steps, several keys at once, and sequences of different lengths."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_equals_onnxruntime(case: Grouped) -> None:
    model = case.model()
    graph = decomposed(model)
    assert not vendor_operators(graph)
    compiled = [dvm_graph.optimize(model, fuse=fuse) for fuse in (True, False)]
    reference = session(replace(case, norms=False).model())
    for new, lengths in RUNS:
        if not case.past and new != max(lengths):
            continue
        feeds = case.feeds(new, lengths)
        expected = reference.run(None, normalized(case, feeds) if case.norms else feeds)
        for actual in (evaluate(graph, feeds), *(model.run(feeds) for model in compiled)):
            for mine, theirs in zip(actual, expected, strict=True):
                assert_close(mine, theirs, reduction_length=100)


def normalized(case: Grouped, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The feeds of a node that normalises nothing: onnxruntime's CPU kernel leaves that to others."""
    result = dict(feeds)
    for name, side in (("query", "q"), ("key", "k")):
        x = feeds[name].reshape(*feeds[name].shape[:2], -1, SIZE)
        epsilon = case.attrs.get(f"{side}_norm_epsilon", case.attrs.get("qk_norm_epsilon", 1e-6))
        root = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon)
        weight = result.pop(f"{side}_norm")
        result[name] = (x / root * weight).reshape(feeds[name].shape).astype(np.float32)
    return result


@pytest.mark.parametrize(
    "label, attrs", [("bidirectional", {"causal": 0}), ("scores", {"qk_output": 1})]
)
def test_what_is_left_to_the_vendor(label: str, attrs: dict[str, Any]) -> None:
    graph = decomposed(Grouped(label, attrs).model())
    assert vendor_operators(graph) == ["GroupQueryAttention"]
