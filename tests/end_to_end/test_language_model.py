"""A small language model as onnxruntime's model builder writes it, generating beside onnxruntime.

Packed 4-bit products, GroupQueryAttention over a growing cache with rotary embeddings, and
SkipSimplifiedLayerNormalization that hands on its sums.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph.decompose import block_quantized
from tests.end_to_end.reference import Array, assert_all_close, session

LAYERS, HEADS, SHARED, SIZE, VOCABULARY, INNER, CAPACITY = 2, 4, 2, 16, 48, 96, 32
HIDDEN = HEADS * SIZE
PACKED = (HEADS + 2 * SHARED) * SIZE
BLOCK = 32
DOMAIN = "com.microsoft"


@dataclass
class _Builder:
    dtype: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))

    def constant(self, name: str, array: Array) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def floats(self, name: str, *shape: int, scale: float = 1.0, shift: float = 0.0) -> str:
        array = self.generator.standard_normal(shape) * scale + shift
        return self.constant(name, array.astype(self.dtype))

    def node(
        self, op: str, inputs: list[str], *outputs: str, domain: str = "", **attrs: object
    ) -> str:
        self.nodes.append(
            helper.make_node(op, inputs, outputs, name=outputs[0], domain=domain, **attrs)
        )
        return outputs[0]

    def product(self, x: str, name: str, k: int, n: int) -> str:
        packed = self.generator.integers(0, 256, (n, k // BLOCK, BLOCK // 2)).astype(np.uint8)
        weights = self.constant(f"{name}.weights", packed)
        scales = self.generator.uniform(0.01, 0.03, (n, k // BLOCK)).astype(self.dtype)
        operands = [x, weights, self.constant(f"{name}.scales", scales)]
        attrs = {"K": k, "N": n, "bits": 4, "block_size": BLOCK}
        return self.node("MatMulNBits", operands, name, domain=DOMAIN, **attrs)

    def norm(self, name: str) -> str:
        return self.floats(name, HIDDEN, scale=0.1, shift=1)

    def lengths(self) -> None:
        one = self.constant("one", np.array([1], np.int64))
        self.node("ReduceSum", ["attention_mask", one], "count", keepdims=0)
        self.node("Sub", ["count", one], "last")
        self.node("Cast", ["last"], "lengths", to=TensorProto.INT32)
        self.node("Shape", ["attention_mask"], "shape")
        axis = self.constant("axis", np.array(1, np.int64))
        self.node("Gather", ["shape", axis], "width")
        self.node("Cast", ["width"], "total", to=TensorProto.INT32)

    def skip_norm(self, x: str, branch: str, name: str) -> tuple[str, str]:
        """The normalised sum, and the sum."""
        operands = [x, branch, self.norm(f"{name}.weight")]
        total = f"{name}.sum"
        self.node("SkipSimplifiedLayerNormalization", operands, name, "", "", total, domain=DOMAIN,
                  epsilon=1e-5)  # fmt: skip
        return name, total

    def layer(self, index: int, x: str, total: str) -> tuple[str, str]:
        name = f"layer{index}"
        packed = self.product(x, f"{name}.qkv", HIDDEN, PACKED)
        past = [f"past.{index}.{side}" for side in ("key", "value")]
        present = [f"present.{index}.{side}" for side in ("key", "value")]
        operands = [packed, "", "", *past, "lengths", "total", "cosine", "sine"]
        attention = self.node(
            "GroupQueryAttention", operands, f"{name}.attention", *present, domain=DOMAIN,
            num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1,
        )  # fmt: skip
        x, total = self.skip_norm(
            total, self.product(attention, f"{name}.out", HIDDEN, HIDDEN), f"{name}.norm"
        )
        gate = self.product(x, f"{name}.gate", HIDDEN, INNER)
        up = self.product(x, f"{name}.up", HIDDEN, INNER)
        bent = self.node("QuickGelu", [gate], f"{name}.bent", domain=DOMAIN, alpha=1.0)
        inner = self.node("Mul", [bent, up], f"{name}.inner")
        return self.skip_norm(
            total, self.product(inner, f"{name}.down", INNER, HIDDEN), f"{name}.last"
        )

    def model(self) -> onnx.ModelProto:
        self.lengths()
        angles = np.outer(np.arange(CAPACITY), 0.5 ** np.arange(SIZE // 2))
        self.constant("cosine", np.cos(angles).astype(self.dtype))
        self.constant("sine", np.sin(angles).astype(self.dtype))
        table = self.floats("embeddings", VOCABULARY, HIDDEN)
        total = self.node("Gather", [table, "input_ids"], "embedded")
        x = self.node(
            "SimplifiedLayerNormalization", [total, self.norm("first")], "norm", epsilon=1e-5
        )
        for index in range(LAYERS):
            x, total = self.layer(index, x, total)
        self.product(x, "logits", HIDDEN, VOCABULARY)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        inputs = {"input_ids": ["b", "s"], "attention_mask": ["b", "t"]}
        info = [helper.make_tensor_value_info(n, TensorProto.INT64, s) for n, s in inputs.items()]
        states = [f"{i}.{side}" for i in range(LAYERS) for side in ("key", "value")]
        cache = ["b", SHARED, "p", SIZE]
        info += [helper.make_tensor_value_info(f"past.{state}", kind, cache) for state in states]
        outputs = ["logits", *(f"present.{state}" for state in states)]
        graph = helper.make_graph(
            self.nodes, "g", info, [onnx.ValueInfoProto(name=n) for n in outputs], self.constants
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("few", [block_quantized.FEW_WEIGHTS, 0])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_generates_what_onnxruntime_generates(dtype: str, few: int) -> None:
    """With weights that are dequantised when it is compiled, and such as stay packed."""
    model = _Builder(dtype).model()
    with mock.patch.object(block_quantized, "FEW_WEIGHTS", few):
        compiled = dvm_graph.optimize(model, strict=True)
    reference = session(model)
    names = [info.name for info in model.graph.input][2:]
    generator = np.random.default_rng(1)
    for batch, prompt in ((1, 5), (2, 3)):
        ids = generator.integers(0, VOCABULARY, (batch, prompt))
        length = prompt
        empty = np.zeros((batch, SHARED, 0, SIZE), dtype)
        mine = theirs = dict.fromkeys(names, empty)
        for _ in range(5):
            tokens = {"input_ids": ids, "attention_mask": np.ones((batch, length), np.int64)}
            actual = list(compiled.run({**tokens, **mine}))
            expected = reference.run(None, {**tokens, **theirs})
            precision = np.dtype(dtype)
            assert_all_close(actual, expected, reduction_length=INNER, precision=precision)
            mine = dict(zip(names, actual[1:], strict=True))
            theirs = dict(zip(names, expected[1:], strict=True))
            ids = np.argmax(expected[0][:, -1:].astype(np.float32), axis=-1)
            length += 1
