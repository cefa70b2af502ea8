"""Random element-wise programs that go from bytes to floats, integers and booleans, and back: onnxruntime's results.

Integers and booleans have to be the same bits, floats near: multiplications and additions may be fused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph import _core

Array = np.ndarray[Any, Any]

TYPES = {
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
}
BYTES, FLOATS, INTEGERS = ("uint8", "int8"), ("float32", "float64"), ("int32", "int64")
SCALES = (0.03125, 0.05, 0.5, 1.0, 2.3)
SHAPES = ((1, 256), (3, 97), (7, 1), (0, 3), (64, 129))
VARIANTS: list[dict[str, Any]] = [
    *({"simd": level} for level in _core.simd_levels()),
    *({"fallbacks": fallbacks} for fallbacks in ("operators", "always")),
    {"cores": 1},
]


@dataclass
class Program:
    """Nodes one after the other, each of which reads what is there."""

    draw: random.Random
    inputs: dict[str, str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.types = dict(self.inputs)
        for _ in range(self.draw.randint(4, 16)):
            value = self.draw.choice(list(self.types)[-6:])
            self.step(value, self.types[value])

    def step(self, x: str, dtype: str) -> None:
        if dtype in BYTES:
            self.on_bytes(x, dtype)
        elif dtype == "float32":
            self.on_floats(x)
        elif dtype in INTEGERS and self.draw.random() < 0.6:
            self.add("Clip", [x, self.number(-20, dtype), self.number(100, dtype)], dtype)
        else:
            self.cast(x, (*BYTES, "float32") if dtype in (*INTEGERS, "bool") else ("float32",))

    def on_bytes(self, x: str, dtype: str) -> None:
        kind = self.draw.choice(["dequantise"] * 5 + ["cast", "choose", "extreme"])
        if kind == "dequantise":
            zero = self.number(self.draw.randint(0, 60), dtype)
            scale = self.number(self.draw.choice(SCALES), "float32")
            self.add("DequantizeLinear", [x, scale, zero], "float32")
        elif kind == "cast":
            self.cast(x, ("bool", *INTEGERS, *FLOATS))
        elif kind == "choose":
            least = self.number(self.draw.randint(0, 100), dtype)
            self.add(
                "Where", [self.add("Greater", [x, least], "bool"), x, self.other(dtype)], dtype
            )
        else:
            self.add(self.draw.choice(["Max", "Min"]), [x, self.other(dtype)], dtype)

    def on_floats(self, x: str) -> None:
        kind = self.draw.random()
        if kind < 0.35:
            dtype = self.draw.choice(BYTES)
            zero = self.number(self.draw.randint(0, 60), dtype)
            scale = self.number(self.draw.choice(SCALES), "float32")
            self.add("QuantizeLinear", [x, scale, zero], dtype)
        elif kind < 0.75:
            names = (
                "Relu",
                "Abs",
                "Neg",
                "Floor",
                "Ceil",
                "Round",
                "Sign",
                "HardSwish",
                "HardSigmoid",
            )
            self.add(self.draw.choice(names), [x], "float32")
        else:
            self.add(
                self.draw.choice(["Add", "Sub", "Mul", "Max"]),
                [x, self.other("float32")],
                "float32",
            )

    def other(self, dtype: str) -> str:
        """A value of a type that is there, or a number."""
        there = [name for name, known in self.types.items() if known == dtype]
        number = self.number(self.draw.choice([0, 1, 3, 100]), dtype)
        return self.draw.choice([*there, number])

    def number(self, number: float, dtype: str) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(number, dtype), name))
        return name

    def cast(self, x: str, dtypes: tuple[str, ...]) -> None:
        dtype = self.draw.choice(dtypes)
        self.add("Cast", [x], dtype, to=TYPES[dtype])

    def add(self, op: str, operands: list[str], dtype: str, **attributes: Any) -> str:
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [result], **attributes))
        self.types[result] = dtype
        return result

    def model(self) -> onnx.ModelProto:
        """Results are what nobody reads, and a few that somebody does."""
        read = {name for node in self.nodes for name in node.input}
        made = [name for name in self.types if name not in self.inputs]
        results = [name for name in made if name not in read or self.draw.random() < 0.15]
        graph = helper.make_graph(
            self.nodes,
            "program",
            [
                helper.make_tensor_value_info(name, TYPES[dtype], ["rows", "columns"])
                for name, dtype in self.inputs.items()
            ],
            [
                helper.make_tensor_value_info(name, TYPES[self.types[name]], None)
                for name in results
            ],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _same(actual: Array, expected: Array) -> None:
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, 1e-4, 1e-4)
    else:
        assert actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize("seed", range(120))
def test_program(seed: int) -> None:
    draw = random.Random(seed)
    inputs = {f"x{i}": draw.choice(BYTES) for i in range(draw.randint(1, 2))}
    model = Program(draw, inputs).model()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    compiled = dvm_graph.optimize(model, **draw.choice(VARIANTS))
    generator = np.random.default_rng(seed)
    for shape in SHAPES:
        feeds = {
            name: np.resize(generator.permutation(256).astype(np.uint8), shape).view(dtype)
            for name, dtype in inputs.items()
        }
        for actual, expected in zip(compiled.run(feeds), session.run(None, feeds), strict=True):
            _same(actual, expected)
