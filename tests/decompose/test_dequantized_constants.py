"""DequantizeLinear of constants of a few bits or by scales of blocks, and products with them, against numpy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph.decompose.dequantized_constants import FEW_WEIGHTS
from dvm_graph.errors import DvmError
from tests.end_to_end.reference import Array
from tests.tolerances import tolerance

GENERATOR = np.random.default_rng(11)
LIMITS = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


class Weights:
    """Constants of a DequantizeLinear, and what they stand for."""

    def __init__(
        self, kind: str, shape: tuple[int, ...], axis: int, size: int, *, zeros: bool = False,
        dtype: str = "float32", alone: bool = False,
    ) -> None:  # fmt: skip
        low, high = LIMITS[kind]
        held = np.dtype(getattr(ml_dtypes, kind, kind))
        blocks = list(shape)
        blocks[axis] = -(-shape[axis] // size) if size else shape[axis]
        parameters = tuple(blocks) if size else () if alone else (shape[axis],)
        x = GENERATOR.integers(low, high, shape)
        s = GENERATOR.uniform(0.01, 0.1, parameters).astype(dtype)
        z = GENERATOR.integers(low, high, parameters)
        self.arrays: dict[str, Array] = {"x": x.astype(held), "s": s}
        if zeros:
            self.arrays["z"] = z.astype(held)
        self.attrs: dict[str, Any] = {"axis": axis} | ({"block_size": size} if size else {})
        wide = [self._spread(np.asarray(p), shape, axis, size) for p in (z * zeros, s)]
        self.exact = (x - wide[0]) * wide[1].astype(np.float64)

    @staticmethod
    def _spread(parameter: Array, shape: tuple[int, ...], axis: int, size: int) -> Array:
        if size:
            return np.repeat(parameter, size, axis).take(range(shape[axis]), axis)
        lead = (
            parameter.reshape(-1, *(1,) * (len(shape) - axis - 1)) if parameter.ndim else parameter
        )
        return np.broadcast_to(lead, shape)

    def model(
        self, nodes: list[onnx.NodeProto], x: tuple[int | str, ...], rank: int
    ) -> onnx.ModelProto:
        """Of nodes that read an input `a` and the matrix `w`, and make `y`."""
        kind = TYPES[self.arrays["s"].dtype.name]
        made = helper.make_node("DequantizeLinear", list(self.arrays), ["w"], **self.attrs)
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            [made, *nodes], "g", [info("a", kind, x)], [info("y", kind, [None] * rank)],
            [numpy_helper.from_array(array, name) for name, array in self.arrays.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


K, N = 640, 512
MANY, FEW = (K, N), (100, 24)
CASES = [
    *(("int4", shape, 0, 32, {}) for shape in (FEW, MANY)),
    *((kind, shape, 0, 64, {"zeros": True}) for shape in (FEW, MANY) for kind in ("int4", "uint4")),
    *(("uint4", shape, 0, 16, {}) for shape in (FEW, MANY)),
    *(("int4", shape, 0, 256, {"zeros": True}) for shape in (FEW, MANY)),
    *(("int4", shape, 1, 0, {"zeros": True}) for shape in (FEW, MANY)),
    *(("uint4", shape, 1, 0, {"alone": True}) for shape in (FEW, MANY)),
    *(("int4", shape, 0, 32, {"zeros": True, "dtype": "float16"}) for shape in (FEW, MANY)),
    ("int8", FEW, 0, 32, {"zeros": True}),
    ("int8", MANY, 0, 32, {"zeros": True}),
    ("uint8", MANY, 0, 64, {}),
    ("uint8", FEW, 1, 8, {}),
    ("int4", FEW, 1, 8, {}),
    ("int4", FEW, 0, 0, {"zeros": True}),
]


def check(model: onnx.ModelProto, weights: Array, lead: tuple[int, ...], dtype: str) -> None:
    """Without the vendor library, at several numbers of rows."""
    mine = dvm_graph.optimize(model)
    assert not mine.report().vendor_operators
    k = weights.shape[0]
    bound = tolerance(np.dtype(dtype), k)
    for rows in (1, 5, 33, 1):
        a = GENERATOR.standard_normal((*lead, rows, k)).astype(dtype)
        (y,) = mine.run({"a": a})
        assert y.dtype == dtype
        exact = a.astype(np.float64) @ weights
        scale = np.abs(a.astype(np.float64)) @ np.abs(weights)
        assert np.all(np.abs(y - exact) <= bound.relative * scale + bound.absolute)


@pytest.mark.parametrize("turn", ["", "Transpose", "Gemm"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_of_constants_are_left_to_nobody(case: tuple[Any, ...], turn: str) -> None:
    kind, shape, axis, size, more = case
    if turn:  # the matrix is [n, k]
        shape, axis = shape[::-1], 1 - axis
    weights = Weights(kind, shape, axis, size, **more)
    matrix = weights.exact.T if turn else weights.exact
    nodes = {
        "": [helper.make_node("MatMul", ["a", "w"], ["y"])],
        "Gemm": [helper.make_node("Gemm", ["a", "w"], ["y"], transB=1)],
        "Transpose": [
            helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
            helper.make_node("MatMul", ["a", "t"], ["y"]),
        ],
    }[turn]
    lead: tuple[int, ...] = () if turn == "Gemm" else (2,)
    model = weights.model(nodes, (*lead, "m", matrix.shape[0]), len(lead) + 2)
    check(model, matrix, lead, more.get("dtype", "float32"))


@pytest.mark.parametrize("kind", LIMITS)
def test_many_weights_stay_packed(kind: str) -> None:
    weights = Weights(kind, MANY, 0, 32, zeros=True)
    nodes = [helper.make_node("MatMul", ["a", "w"], ["y"])]
    mine = dvm_graph.optimize(weights.model(nodes, ("m", K), 2))
    assert K * N > FEW_WEIGHTS
    assert "m_matmul_blocks" in mine.disassemble({"a": np.ones((3, K), np.float32)})


@pytest.mark.parametrize("kind, size, axis", [("int8", 8, 0), ("int4", 8, 0), ("int4", 32, 1)])
def test_others_of_many_are_dequantised_beside_the_product(kind: str, size: int, axis: int) -> None:
    """By the vendor library; `strict`, which has none, does so for good."""
    weights = Weights(kind, MANY, axis, size)
    nodes = [helper.make_node("MatMul", ["a", "w"], ["y"])]
    model = weights.model(nodes, ("m", K), 2)
    assert len(dvm_graph.optimize(model).report().vendor_operators) == 2
    a = GENERATOR.standard_normal((3, K), dtype=np.float32)
    for strict in (False, True):
        (y,) = dvm_graph.optimize(model, strict=strict).run({"a": a})
        np.testing.assert_allclose(y, a @ weights.exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(
    "kind, size, axis, more",
    [
        ("int4", 0, 0, {"zeros": True}),
        ("uint4", 0, 0, {"alone": True}),
        ("int4", 32, 1, {"dtype": "float16"}),
        ("int8", 64, 0, {"zeros": True}),
        ("uint8", 16, 1, {}),
    ],
)
def test_weights_of_convolutions_are_dequantised_for_good(
    kind: str, size: int, axis: int, more: dict[str, Any], op: str
) -> None:
    """However many they are: as onnxruntime convolves with what they stand for."""
    shape = (256, 128, 3, 3)
    weights = Weights(kind, shape, axis, size, **more)
    assert np.prod(shape) > FEW_WEIGHTS
    nodes = [helper.make_node(op, ["a", "w"], ["y"], pads=[1, 1, 1, 1])]
    channels = shape[1] if op == "Conv" else shape[0]
    model = weights.model(nodes, ("b", channels, "h", "w_"), 4)
    mine = dvm_graph.optimize(model)
    assert not mine.report().vendor_operators
    plain = onnx.ModelProto.FromString(model.SerializeToString())
    del plain.graph.node[0], plain.graph.initializer[:]
    dtype = weights.arrays["s"].dtype
    plain.graph.initializer.append(numpy_helper.from_array(weights.exact.astype(dtype), "w"))
    reference = ort.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    for extents in ((1, 7, 9), (2, 1, 1), (3, 14, 5)):
        a = GENERATOR.standard_normal((extents[0], channels, *extents[1:])).astype(dtype)
        (y,), (wanted,) = mine.run({"a": a}), reference.run(None, {"a": a})
        assert y.dtype == dtype and y.shape == wanted.shape
        bound = tolerance(dtype, 9 * channels)
        scale = np.abs(wanted.astype(np.float64)).max()
        assert (
            np.abs(y.astype(np.float64) - wanted).max()
            <= 2 * bound.relative * scale + bound.absolute
        )


def test_rows_of_few_are_read_as_they_are() -> None:
    """Whoever reads them: here a Gather."""
    weights = Weights("int4", (30, 64), 1, 32, zeros=True)
    nodes = [
        helper.make_node("Cast", ["a"], ["i"], to=TensorProto.INT64),
        helper.make_node("Gather", ["w", "i"], ["y"]),
    ]
    mine = dvm_graph.optimize(weights.model(nodes, ("m",), 2))
    assert not mine.report().vendor_operators
    index = np.array([3, 0, 29], np.float32)
    expected = weights.exact[index.astype(int)].astype(np.float32)
    np.testing.assert_allclose(mine.run({"a": index})[0], expected, rtol=1e-6)


def test_branches_read_constants_around_them() -> None:
    """Merged decoders have their weights there."""
    weights = Weights("int4", (64, 48), 0, 32, zeros=True)
    info = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    dequantized = helper.make_node("DequantizeLinear", list(weights.arrays), ["w"], **weights.attrs)
    chain = [*(helper.make_node("Softmax", [f"t{i}"], [f"t{i + 1}"]) for i in range(12))]
    branches = {
        f"{way}_branch": helper.make_graph(
            [
                dequantized,
                helper.make_node("MatMul", ["a", "w"], ["t0"]),
                *chain,
                helper.make_node(op, ["t12"], ["r"]),
            ],
            way,
            [],
            [info],
        )
        for way, op in (("then", "Neg"), ("else", "Exp"))
    }
    nodes = [
        helper.make_node("ReduceMax", ["a"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    model = weights.model(nodes, ("m", 64), 2)
    del model.graph.node[0]
    mine = dvm_graph.optimize(model)
    assert not mine.report().vendor_operators
    for a in (np.ones((3, 64), np.float32), np.zeros((2, 64), np.float32)):
        exact = a @ weights.exact
        for _ in range(12):
            exact = np.exp(exact - exact.max(1, keepdims=True))
            exact /= exact.sum(1, keepdims=True)
        expected = -exact if a.any() else np.exp(exact)
        np.testing.assert_allclose(mine.run({"a": a})[0], expected, rtol=1e-5)


def test_scales_that_do_not_fit_are_refused() -> None:
    weights = Weights("int4", FEW, 0, 32)
    weights.arrays["s"] = weights.arrays["s"][:-1]
    nodes = [helper.make_node("MatMul", ["a", "w"], ["y"])]
    with pytest.raises(DvmError):
        dvm_graph.optimize(weights.model(nodes, ("m", FEW[0]), 2)).run(
            {"a": np.ones((2, FEW[0]), np.float32)}
        )
