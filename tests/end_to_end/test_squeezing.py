"""Squeeze without axes, where only the run tells which dims are 1, against onnxruntime."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import dvm_graph
from dvm_graph.errors import ExecutionError, InputError
from tests.decompose.reference import session
from tests.end_to_end.test_continuations import agrees
from tests.end_to_end.test_control_flow import normal, parse

BEHIND = {
    "nothing": "y = Identity(s)",
    "operators": "t = Tanh(s) y = Mul(t, s)",
    "its rank": "f = Shape(s) y = Size(f)",
    "a reduction over all": "y = ReduceMax<keepdims = 0>(s)",
    "another one": "t = ReduceMean<axes = [-1], keepdims = 1>(x) u = Squeeze(t) v = Exp(s) w = Exp(u) y = Sum(v, one) z = Neg(w)",
    "two results": "y = Exp(s) z = ReduceSum<keepdims = 0>(s)",
}


def _model(behind: str, dims: str) -> onnx.ModelProto:
    results = (
        "int64[i] y"
        if behind == "its rank"
        else "float[i] y, float[j] z"
        if " z = " in BEHIND[behind]
        else "float[i] y"
    )
    proto = parse(
        f"""g (float[{dims}] x) => ({results}) {{
          one = Constant<value_float = 1.0>() r = Relu(x) s = Squeeze(r) {BEHIND[behind]}
        }}""",
        17,
    )
    return _of_any_rank(proto)


def _of_any_rank(proto: onnx.ModelProto) -> onnx.ModelProto:
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    return proto


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("dims", ["a, 1, c", "a, b, c", "a, a, 5"])
def test_any_rank(behind: str, dims: str) -> None:
    names = [name.strip() for name in dims.split(",")]
    runs = []
    for extents in product((1, 3), (1, 4), (1, 5)):
        bound = dict(zip(names, extents, strict=True))
        shape = tuple(int(name) if name.isdigit() else bound[name] for name in names)
        runs.append({"x": normal(*shape)})
    model = agrees(_model(behind, dims), *runs)
    assert model.report().vendor_operators == ()


@pytest.mark.parametrize("product_of", ["MatMul(s, w)", "Gemm(s, w)"])
def test_scores_of_a_batch(product_of: str, tmp_path: Path) -> None:
    """As classifiers end. One image has no axis of a batch; onnxruntime has the Gemm of that, which is none of ONNX, and
    what is behind it in its branch.
    """
    proto = parse(
        f"""g (float[n, 8, h, w0] x, float[8, 5] w) => (float[i] y) {{
          p = GlobalAveragePool(x) s = Squeeze(p) q = {product_of} y = Softmax(q)
        }}""",
        17,
    )
    runs = [{"x": normal(n, 8, 3, 4), "w": normal(8, 5)} for n in (3, 1, 2)]
    model = agrees(_of_any_rank(proto), *runs)
    assert len(model.report().vendor_operators) == 2 * ("Gemm" in product_of)
    assert ", 0 vendor operators" in str(model.report())  # of the branch of several
    model.save(tmp_path / "model.dvm")
    loaded = dvm_graph.load(tmp_path / "model.dvm")
    for feeds in runs:
        np.testing.assert_array_equal(loaded.run(feeds)[0], model.run(feeds)[0])


def test_more_axes_than_branches_are_made_for() -> None:
    dims = ", ".join("abcdefgh")
    proto = parse(f"g (float[{dims}] x) => (float[i] y) {{ s = Squeeze(x) y = Neg(s) }}", 17)
    model = agrees(_of_any_rank(proto), {"x": normal(*(1, 2) * 4)}, {"x": normal(*(1,) * 8)})
    assert any(name.startswith("Squeeze") for name in model.report().vendor_operators)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("dtype", ["float", "float16", "int64", "bool", "uint8", "string"])
def test_any_type(dtype: str, opset: int) -> None:
    proto = parse(f"g ({dtype}[a, 3] x) => ({dtype}[i] y) {{ y = Squeeze(x) }}", opset)
    kind = onnx.helper.tensor_dtype_to_np_dtype(proto.graph.input[0].type.tensor_type.elem_type)
    model, reference = dvm_graph.optimize(_of_any_rank(proto)), session(proto)
    for count in (1, 2):
        feeds: dict[str, Any] = {"x": np.arange(3 * count).reshape(count, 3).astype(kind)}
        (got,), (want,) = model.run(feeds), reference.run(None, feeds)
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("op", ["Squeeze", "ReduceSum<keepdims = 0>"])
def test_of_axes_that_a_run_gives_one_may_be_told_twice(op: str) -> None:
    """As many as are told were taken off the rank."""
    proto = parse(
        f"""g (float[a, b, c] x, int64[2] axes) => (float[i] y) {{
          s = {op}(x, axes) y = Softmax(s)
        }}""",
        17,
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    twice, others = (np.array(axes, np.int64) for axes in ([0, 0], [0, -1]))
    agrees(proto, *({"x": normal(1, 3, 1), "axes": axes} for axes in (others, twice, others)))


CONTRADICTED = {
    "Reshape": "four = Constant<value_ints = [4, -1]>() r = Reshape(s, four)",
    "Softmax": "r = Softmax<axis = 1>(s)",
    "Transpose": "r = Transpose<perm = [1, 0]>(s)",
    "Flatten": "r = Flatten<axis = 2>(s)",
    "Flatten from behind": "r = Flatten<axis = -2>(s)",
    "Pad": "pads = Constant<value_ints = [0, 1, 0, 2]>() r = Pad(s, pads)",
}


@pytest.mark.parametrize("op", CONTRADICTED)
def test_a_branch_that_contradicts_itself_is_refused_when_it_is_taken(op: str) -> None:
    """Seven elements of one row are no four rows, and no second axis."""
    text = f"""g (float[b, 7, 1] x) => (float[m, n] y) {{
      s = Squeeze(x)
      {CONTRADICTED[op]}
      y = Exp(r)
    }}"""
    model = agrees(parse(text, 17), {"x": normal(4, 7, 1)}, {"x": normal(8, 7, 1)})
    assert " s f32[?]" not in str(model.report())  # what reads it is in branches
    assert ", 0 vendor operators" in str(model.report())  # of that of several rows
    with pytest.raises(ExecutionError, match=f"onnxruntime failed in .*{op.split()[0]}"):
        model.run({"x": normal(1, 7, 1)})


def test_results_written_into_arrays() -> None:
    proto = parse(
        "g (float[m, n] x) => (float[i] s, float[m, n] y) { s = Squeeze(x) y = Neg(x) }", 17
    )
    model = dvm_graph.optimize(_of_any_rank(proto))
    x = np.arange(3, dtype=np.float32).reshape(1, 3)
    given = {"y": np.empty_like(x), "s": np.empty(3, np.float32)}
    for names in (["y"], ["s"], ["s", "y"]):
        s, y = model.run({"x": x}, outputs={name: given[name] for name in names})
        np.testing.assert_array_equal(s, x[0])
        np.testing.assert_array_equal(y, -x)
        for name in names:
            assert {"s": s, "y": y}[name] is given[name]
    with pytest.raises(InputError, match=r"shape \[1, 3\], but this run gives \[3\]"):
        model.run({"x": x}, outputs={"s": np.empty_like(x)})
    with pytest.raises(InputError, match="float64"):
        model.run({"x": x}, outputs={"s": np.empty(3)})
    s, y = model.run({"x": x}, outputs={"y": x})
    np.testing.assert_array_equal(s, [0, 1, 2])
    np.testing.assert_array_equal(y, [[0, -1, -2]])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.bool_, np.int64])
def test_results_written_into_arrays_of_other_types(dtype: Any) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Squeeze", ["x"], ["s"])],
        "g",
        [helper.make_tensor_value_info("x", kind, ["m", "n"])],
        [helper.make_tensor_value_info("s", kind, None)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x, given = np.array([[0, 1, 2]]).astype(dtype), np.ones(3).astype(dtype)
    dvm_graph.optimize(proto).run({"x": x}, outputs={"s": given})
    np.testing.assert_array_equal(given, x[0])
