"""Models of one operator of `ai.onnx.ml` over strings and numbers, and their results beside onnxruntime's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dvm_graph
from tests.decompose.reference import session

Feed = Any


def element_of(feed: Feed) -> int:
    array = np.asarray(feed)
    if array.dtype.kind in "OUS":
        return int(TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, list[Any] | None]],
    outputs: Sequence[str],
    version: int = 1,
) -> onnx.ModelProto:
    """Nodes over inputs of these types and dims; outputs have the types that are inferred."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, *about) for name, about in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def alone(
    op: str, attributes: Mapping[str, Any], feed: Feed, version: int = 1, results: int = 1
) -> onnx.ModelProto:
    """An operator over one input `x`, whose extents have names."""
    names = [f"y{at}" for at in range(results)]
    node = helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **attributes)
    dims = [f"d{axis}" for axis in range(np.ndim(feed))]
    return model_of([node], {"x": (element_of(feed), dims)}, names, version)


def assert_same(got: Any, wanted: Any, rtol: float = 0.0) -> None:
    """Arrays of one dtype and shape, and the same elements; lists of maps with keys in the same order."""
    if isinstance(wanted, list):
        assert isinstance(got, list) and len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert list(one) == list(other)
            assert list(map(type, one.values())) == list(map(type, other.values()))
            np.testing.assert_allclose(list(one.values()), list(other.values()), rtol, rtol)
        return
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)
        if not rtol:
            np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
    else:
        np.testing.assert_array_equal(got, wanted)


def assert_agrees(
    proto: onnx.ModelProto, *feeds: Mapping[str, Feed], native: bool = True, rtol: float = 0.0
) -> None:
    """With onnxruntime, which refuses the same feeds, or the model."""
    try:
        reference = session(proto)
    except Exception:  # whatever class onnxruntime has for it
        with pytest.raises(dvm_graph.DvmError):
            dvm_graph.optimize(proto)
        return
    compiled = dvm_graph.optimize(proto)
    assert (compiled.report().vendor_operators == ()) == native
    for feed in feeds:
        try:
            wanted = reference.run(None, feed)
        except Exception:
            with pytest.raises(dvm_graph.DvmError):
                compiled.run(feed)
            continue
        for one, other in zip(compiled.run(feed), wanted, strict=True):
            assert_same(one, other, rtol)
