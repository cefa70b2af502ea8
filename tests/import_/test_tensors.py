"""Tensors of every type against onnx's own reading of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph.errors import ModelError, OutOfMemoryError
from dvm_graph.import_.external_data import ExternalData
from dvm_graph.import_.tensors import (
    array_to_tensor,
    dtype_of,
    onnx_type_of,
    sparse_to_array,
    tensor_to_array,
)
from dvm_graph.ir import DType

NOWHERE = ExternalData(None)
TYPES = sorted(set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING})
PACKED = {
    TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1, TensorProto.INT2, TensorProto.UINT2
}  # fmt: skip


def sample(kind: int) -> np.ndarray:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    if kind == TensorProto.BOOL:
        return np.array([True, False, True])
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, 0, info.max], dtype)
    return np.array([0.5, 1.0, 2.0]).astype(dtype)


@pytest.mark.parametrize("kind", TYPES, ids=TensorProto.DataType.Name)
def test_raw_data(kind: int) -> None:
    tensor = numpy_helper.from_array(sample(kind), "t")
    assert tensor.HasField("raw_data")
    array = tensor_to_array(tensor, NOWHERE)
    np.testing.assert_array_equal(array, numpy_helper.to_array(tensor))
    assert array.dtype == numpy_helper.to_array(tensor).dtype
    assert not array.flags.writeable


@pytest.mark.parametrize("kind", TYPES, ids=TensorProto.DataType.Name)
def test_typed_fields(kind: int) -> None:
    values = sample(kind)
    tensor = helper.make_tensor("t", kind, values.shape, values.tolist())
    assert not tensor.HasField("raw_data")
    array = tensor_to_array(tensor, NOWHERE)
    np.testing.assert_array_equal(array, values)
    assert array.dtype == values.dtype


def test_unsigned_values_stored_sign_extended() -> None:
    tensor = TensorProto(name="t", data_type=TensorProto.UINT8, dims=[2], int32_data=[-1, 255])
    assert tensor_to_array(tensor, NOWHERE).tolist() == [255, 255]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 1, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    read = tensor_to_array(numpy_helper.from_array(array, "t"), NOWHERE)
    assert read.shape == shape
    np.testing.assert_array_equal(read, array)


def test_strings_round_trip() -> None:
    array = np.array([["a", "ü"], ["", "d"]], object)
    read = tensor_to_array(numpy_helper.from_array(array, "t"), NOWHERE)
    assert read.tolist() == array.tolist()
    assert numpy_helper.to_array(array_to_tensor(read, "t")).tolist() == array.tolist()


def tensor(**fields: object) -> TensorProto:
    return TensorProto(name="w", **{"data_type": TensorProto.FLOAT, "dims": [2], **fields})


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (tensor(raw_data=b"1234567"), "7 bytes.*need 8"),
        (tensor(dims=[10**6, 10**6, 10**6], raw_data=b""), "0 bytes"),
        (tensor(float_data=[1.0]), "1 elements"),
        (tensor(), "0 elements"),
        (tensor(dims=[-2], raw_data=b"12345678"), "negative"),
        (tensor(data_type=0, raw_data=b"12345678"), "data type 0"),
        (tensor(data_type=999, raw_data=b"12345678"), "data type 999"),
        (tensor(data_type=TensorProto.STRING, string_data=[b"x"]), "1 strings, not 2"),
        (tensor(data_type=TensorProto.INT4, raw_data=b"12"), "2 bytes.*1 needed"),
    ],
)
def test_data_that_do_not_fit(broken: TensorProto, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        tensor_to_array(broken, NOWHERE)


def test_segments_are_refused() -> None:
    broken = tensor(float_data=[1.0, 2.0])
    broken.segment.begin = 0
    with pytest.raises(ModelError, match="segment"):
        tensor_to_array(broken, NOWHERE)


def sparse(indices: np.ndarray, dims: list[int], values: list[float]) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), "s"),
        numpy_helper.from_array(indices, "i"),
        dims,
    )


def test_sparse_both_ways() -> None:
    expected = np.zeros((2, 3), np.float32)
    expected[0, 2], expected[1, 0] = 5.0, 7.0
    linear = sparse(np.array([2, 3]), [2, 3], [5.0, 7.0])
    per_axis = sparse(np.array([[0, 2], [1, 0]]), [2, 3], [5.0, 7.0])
    for form in (linear, per_axis):
        np.testing.assert_array_equal(sparse_to_array(form, NOWHERE), expected)


@pytest.mark.parametrize(
    "indices", [np.array([6]), np.array([-1]), np.array([[0, 3]]), np.array([[0, -1]])]
)
def test_sparse_index_outside(indices: np.ndarray) -> None:
    with pytest.raises(ModelError, match="index"):
        sparse_to_array(sparse(indices, [2, 3], [1.0]), NOWHERE)


def test_sparse_of_absurd_size_takes_no_memory() -> None:
    with pytest.raises(OutOfMemoryError):
        sparse_to_array(sparse(np.array([0]), [2**31, 2**20], [1.0]), NOWHERE)


def test_types_map_one_to_one() -> None:
    known = {kind: dtype_of(kind) for kind in TensorProto.DataType.values()}
    assert set(known.values()) == set(DType)
    for dtype in set(DType) - {DType.OPAQUE}:
        assert dtype_of(onnx_type_of(dtype)) is dtype
    assert all(known[kind] is DType.OPAQUE for kind in PACKED | {TensorProto.STRING})


def test_strings_that_are_no_text() -> None:
    """What onnxruntime compares by its bytes; handing such constants on to it failed."""
    words = TensorProto(
        name="w", data_type=TensorProto.STRING, dims=[2], string_data=[b"a", b"\xff"]
    )
    array = tensor_to_array(words, NOWHERE)
    assert array_to_tensor(array, "w") == words
    node = helper.make_node("Gather", ["w", "i"], ["y"])
    shape = helper.make_node("Shape", ["y"], ["s"])
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])]
    outputs = [helper.make_tensor_value_info("s", TensorProto.INT64, [1])]
    graph = helper.make_graph([node, shape], "g", inputs, outputs, [words])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert dvm_graph.optimize(model).run({"i": np.array([1, 0, 1])})[0].tolist() == [3]
