"""Element types that onnxruntime's kernels, or numpy, lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import dvm_graph
from tests.end_to_end.reference import Array, model_from_text
from tests.end_to_end.test_vendor_values import model, node

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NUMBERS = np.arange(24, dtype=np.float32)


def in_float(source: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """What onnx's reference gives in float32; exact for the numbers of these tests."""
    wide = onnx.ModelProto()
    wide.CopyFrom(source)
    for info in wide.graph.input:
        if info.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    fed = {k: v.astype(np.float32) if v.dtype == BFLOAT16 else v for k, v in feeds.items()}
    return [np.asarray(array) for array in ReferenceEvaluator(wide).run(None, fed)]


@pytest.mark.parametrize(
    ("op", "shape", "more", "attributes"),
    [
        ("Compress", (2, 3, 4), {"c": np.array([True, False, True, True])}, {"axis": 2}),
        (
            "ReverseSequence",
            (3, 4, 2),
            {"l": np.array([1, 2, 3, 2])},
            {"time_axis": 0, "batch_axis": 1},
        ),
        ("AveragePool", (1, 1, 2, 3, 4), {}, {"kernel_shape": [1, 1, 2]}),
        ("Unique", (24,), {}, {}),
    ],
)
def test_casts_where_onnxruntime_has_no_bfloat16(
    op: str, shape: tuple[int, ...], more: dict[str, Array], attributes: dict[str, Any]
) -> None:
    feeds = {"x": NUMBERS.reshape(shape).astype(BFLOAT16), **more}
    nodes = [helper.make_node(op, list(feeds), ["r"], **attributes), node("Neg", "r", "y")]
    source = model(nodes, feeds)
    mine = dvm_graph.optimize(source)
    (result,) = mine.run(feeds)
    (expected,) = in_float(source, feeds)
    assert result.dtype == BFLOAT16
    np.testing.assert_array_equal(result.astype(np.float32), expected)
    assert mine.report().vendor_casts == (f"{op} (r): bfloat16 as float",)
    assert "bfloat16 as float" in str(mine.report())


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("reduction", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", [np.float16, np.bool_])
def test_scatters_that_onnxruntime_takes_and_refuses_at_runs(
    op: str, reduction: str, dtype: type
) -> None:
    """It runs them between operators for whose halves it has no kernel: then in float."""
    x = (NUMBERS.reshape(8, 3) % 4).astype(dtype)
    updates = np.array([[0, 2, 1], [3, 0, 1]]).astype(dtype)
    rows = np.array([[1], [6]] if op == "ScatterND" else [[1] * 3, [6] * 3])
    feeds = {"x": x, "i": rows, "u": updates}
    source = model([helper.make_node(op, list(feeds), ["y"], reduction=reduction)], feeds)
    (result,) = dvm_graph.optimize(source).run(feeds)
    combine = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[reduction]
    expected = x.copy()
    expected[[1, 6]] = combine(x[[1, 6]], updates)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2", "bfloat16"])
@pytest.mark.parametrize("shape", [(7,), (2, 3), (), (0, 2)])
def test_types_that_numpy_lacks_come_in_and_go_out(name: str, shape: tuple[int, ...]) -> None:
    """Through a reshape by an input, so that bfloat16 has no known rank either."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    x = np.resize(np.array([1, 2, 3, 4, 5], np.float32), shape).astype(dtype)
    nodes = [
        node("Reshape", "x s", "y"),
        helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["z"], ["w"], to=kind),
    ]
    feeds = {"x": x, "s": np.array(shape, np.int64)}
    source = model(nodes, feeds, outputs=("y", "z", "w"))
    source.opset_import[0].version = 21
    y, z, w = dvm_graph.optimize(source).run(feeds)
    assert y.dtype == w.dtype == dtype
    for result in (y, z, w):
        np.testing.assert_array_equal(result.astype(np.float32), x.astype(np.float32))


def test_strings_beside_types_that_numpy_lacks() -> None:
    """onnxruntime makes no values of its own of strings."""
    words = np.array(["1", "2.5", "-3"], object)
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["f"], ["y"], to=TensorProto.FLOAT8E4M3FN),
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
        node("Neg", "b", "z"),
    ]
    source = model(nodes, {"x": words}, {"x": ["n"]}, outputs=("y", "b", "z"))
    y, b, z = dvm_graph.optimize(source).run({"x": words})
    for result, sign in ((y, 1), (b, 1), (z, -1)):
        np.testing.assert_array_equal(result.astype(np.float32), [sign, sign * 2.5, sign * -3])
    with pytest.raises(dvm_graph.DvmError):
        dvm_graph.optimize(source).run({"x": NUMBERS})


def test_ports_say_their_types() -> None:
    nodes = [node("SequenceConstruct", "x x", "q"), node("SequenceAt", "q i", "y")]
    source = model(nodes, {"x": NUMBERS, "i": np.array(0)}, {"x": ["n"]}, outputs=("q", "y"))
    mine = dvm_graph.optimize(source)
    assert [port.type for port in mine.get_outputs()] == ["seq(tensor(float))", "tensor(float)"]
    (first, second), _ = mine.run({"x": NUMBERS, "i": np.array(0)})
    np.testing.assert_array_equal(first, second)


def test_optional_inputs_may_be_none() -> None:
    info = helper.make_value_info(
        "o",
        helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])),
    )
    nodes = [node("OptionalHasElement", "o", "h"), node("Not", "h", "y")]
    graph = helper.make_graph(nodes, "g", [info], [onnx.ValueInfoProto(name="y")])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    mine = dvm_graph.optimize(source)
    assert mine.run({"o": None})[0] and not mine.run({"o": NUMBERS})[0]
    assert mine.get_inputs()[0].type == "optional(tensor(float))"


@pytest.mark.parametrize("keys", [["a", "b"], ["b", "c"]])
def test_maps_come_in_and_go_out(keys: list[str]) -> None:
    kinds = {
        "m": helper.make_map_type_proto(
            TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
        )
    }
    nodes = [
        helper.make_node(
            "DictVectorizer", ["m"], ["v"], domain="ai.onnx.ml", string_vocabulary=["a", "b", "c"]
        ),
        node("Neg", "v", "n"),
        helper.make_node(
            "ZipMap", ["n"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "c"]
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_value_info(name, kind) for name, kind in kinds.items()],
        [helper.make_value_info("y", helper.make_sequence_type_proto(kinds["m"]))],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    source = helper.make_model(graph, opset_imports=imports, ir_version=9)
    feed = {key: float(index + 1) for index, key in enumerate(keys)}
    (result,) = dvm_graph.optimize(source).run({"m": feed})
    assert result == [{key: -feed.get(key, 0.0) for key in ("a", "b", "c")}]


def test_signed_numbers_without_a_zero_point_stay_signed() -> None:
    """onnxruntime's optimiser moves a view past such a DequantizeLinear as if they were unsigned."""
    source = model_from_text(
        """g (int8[n, m] x) => (float[m, n] y) <float s = {0.5}> {
            [dequantize] d = DequantizeLinear(x, s)
            [transpose] y = Transpose<perm = [1, 0]>(d)
        }""",
        opset=19,
    )
    x = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    vendor = dvm_graph.Options(vendor_nodes=frozenset(("dequantize", "transpose")))
    (result,) = dvm_graph.optimize(source, vendor).run({"x": x})
    np.testing.assert_array_equal(result, x.T.astype(np.float32) / 2)
