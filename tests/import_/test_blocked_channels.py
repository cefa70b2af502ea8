"""Models that onnxruntime laid in blocks of channels for this machine: they are what they were before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

import dvm_graph
from dvm_graph.import_.vendor_library import channels_of_block
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model

BLOCKS = pytest.mark.skipif(
    channels_of_block() is None, reason="onnxruntime lays no channels in blocks on this machine"
)
TEXTS = {
    "planes, odd channels": "c = Conv<pads=[1,1,1,1]>(x, w20x3x3x3, b20) y = Sigmoid(c)",
    "chain": """a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w32x3x3x3, b32) r = Relu(a)
        c = Conv(r, w40x32x1x1, b40) t = Tanh(c) e = Conv<pads=[0,1,2,1]>(t, w24x40x3x3)
        y = Transpose<perm=[0,2,3,1]>(e)""",
    "sums": """a = Conv(x, w32x3x1x1, b32) p = Conv<pads=[1,1,1,1]>(a, w32x32x3x3, b32) s = Add(p, a)
        r = Relu(s) q = Conv<pads=[1,1,1,1]>(r, w32x32x3x3) y = Add(q, r)""",
    "by channels": """a = Conv(x, w48x3x1x1, b48) r = HardSigmoid<alpha = 0.3>(a)
        d = Conv<group=48, pads=[1,1,1,1], dilations=[1,1]>(r, w48x1x3x3, b48) l = LeakyRelu<alpha=0.2>(d)
        y = Conv(l, w10x48x1x1, b10)""",
    "groups": "a = Conv(x, w64x3x1x1, b64) y = Conv<group=2, pads=[2,2,2,2]>(a, w64x32x5x5, b64)",
    "pools": """a = Conv(x, w32x3x3x3, b32) p = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(a)
        c = Conv(p, w32x32x1x1) v = AveragePool<kernel_shape=[2,2], count_include_pad=1, pads=[1,0,0,1]>(c)
        g = GlobalAveragePool(v) m = GlobalMaxPool(v) s = Add(g, m) y = Conv(s, w7x32x1x1, b7)""",
    "gates": """a = Conv(x, w16x3x3x3, b16) g = GlobalAveragePool(a) h = Conv(g, w16x16x1x1, b16)
        i = Sigmoid(h) s = Add(i, a) r = Relu(s) y = Conv(r, w32x16x3x3)""",
    "joined": """a = Conv(x, w32x3x1x1, b32) c = Conv(x, w16x3x1x1) j = Concat<axis=1>(a, c) n = Clip(j, low, high)
        k = Mul(n, n) y = Conv(k, w32x48x3x3)""",
    "grown": """a = Conv(x, w32x3x1x1, b32)
        n = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(a, , twice)
        c = Conv(n, w32x32x1x1) l = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(c, , twice)
        e = Conv(l, w32x32x1x1) k = Resize<mode="linear", coordinate_transformation_mode="align_corners">(e, , twice)
        y = Conv(k, w5x32x1x1)""",
    "channels last": """t = Transpose<perm=[0,3,1,2]>(z) a = Conv(t, w36x20x3x3, b36) r = Relu(a)
        u = Transpose<perm=[0,2,3,1]>(r) v = Transpose<perm=[0,3,1,2]>(u) y = Conv(v, w20x36x1x1, b20)""",
}


def _model(text: str) -> onnx.ModelProto:
    """Weights are named by their shapes; each is another one."""
    numbers, used = np.random.default_rng(0), []
    words = text.replace(",", " ").replace(")", " ").replace("(", " ").split()
    for name in dict.fromkeys(words):
        if name[0] in "wb" and name[1:].replace("x", "").isdigit():
            shape = [int(extent) for extent in name[1:].split("x")]
            weights = numbers.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
            used.append(numpy_helper.from_array(weights.astype(np.float32), name))
    constants: dict[str, Any] = {"low": np.float32(-0.5), "high": np.float32(0.4)}
    constants["twice"] = np.asarray([1, 1, 2, 2], np.float32)
    used += [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items() if k in words]
    given = "float[n,h,w,20] z" if "(z)" in text else "float[n,3,h,w] x"
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({given}) => (float[a,b,c,d] y) {{ {text} }}'
    )
    model.graph.initializer.extend(used)
    return model


def _blocked(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """As onnxruntime saves it."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3  # it warns that such a file is for this machine only
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return onnx.load(path)


def _feeds(model: onnx.ModelProto, batch: int, height: int, width: int) -> dict[str, Any]:
    name = model.graph.input[0].name
    shape = (batch, height, width, 20) if name == "z" else (batch, 3, height, width)
    return {name: np.random.default_rng(batch).standard_normal(shape, np.float32)}


@BLOCKS
@pytest.mark.parametrize("name", TEXTS)
def test_blocks_are_planes_again(name: str, tmp_path: Path) -> None:
    model = _model(TEXTS[name])
    blocked = _blocked(model, tmp_path / "blocked.onnx")
    assert any(node.domain == "com.microsoft.nchwc" for node in blocked.graph.node)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    reference = onnxruntime.InferenceSession(model.SerializeToString(), plain)
    optimized = dvm_graph.optimize(blocked, strict=True)
    for sizes in ((2, 12, 17), (1, 9, 9)):
        feeds = _feeds(model, *sizes)
        (expected,) = reference.run(None, feeds)
        np.testing.assert_allclose(optimized.run(feeds)[0], expected, rtol=1e-4, atol=1e-5)


@BLOCKS
def test_blocks_that_are_not_understood_are_left_to_onnxruntime(tmp_path: Path) -> None:
    """All of them: what lies between two would be read in another order."""
    model = _model(TEXTS["chain"])
    blocked = _blocked(model, tmp_path / "blocked.onnx")
    weights = next(node for node in blocked.graph.node if node.op_type == "Conv").input[1]
    tensor = next(t for t in blocked.graph.initializer if t.name == weights)
    blocked.graph.initializer.remove(tensor)
    blocked.graph.node.insert(
        0, helper.make_node("Constant", [], [weights], value=tensor)
    )  # no initializer
    graph = compile_model(blocked, Options()).graph
    left = [node for node in graph.nodes if node.op == "vendor"]
    convolutions = sum(node.op_type == "Conv" for node in blocked.graph.node)
    assert sum("Conv" in str(node.attrs["op"]) for node in left) == convolutions
    feeds = _feeds(model, 1, 9, 9)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    (y,) = dvm_graph.optimize(blocked).run(feeds)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@BLOCKS
@pytest.mark.parametrize(
    "between", ["Softmax<axis = 1>(r)", "Concat<axis = 2>(r, r)", "Mul(r, numbers)"]
)
def test_what_looks_where_elements_of_blocks_lie_is_not_understood(
    between: str, tmp_path: Path
) -> None:
    """It is given blocks, as it was by whoever wrote the file."""
    model = _model("a = Conv(x, w32x3x1x1, b32) r = MaxPool<kernel_shape=[1,1]>(a) y = Relu(r)")
    blocked = _blocked(model, tmp_path / "blocked.onnx")
    (inner,) = parser.parse_graph(
        f"g (float[a,b,c,d] r) => (float[a,b,c,d] z) {{ z = {between} }}"
    ).node
    at, out = next((i, n) for i, n in enumerate(blocked.graph.node) if n.op_type == "ReorderOutput")
    inner.input[:] = [out.input[0] if name == "r" else name for name in inner.input]
    out.input[0] = "z"
    blocked.graph.node.insert(at, inner)
    if "numbers" in inner.input:
        blocked.graph.initializer.append(
            numpy_helper.from_array(np.arange(16, dtype=np.float32), "numbers")
        )
    feeds = _feeds(model, 1, 9, 16)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(blocked.SerializeToString(), options)
    (expected,) = session.run(None, feeds)
    (y,) = dvm_graph.optimize(blocked).run(feeds)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


NAMED = "com.microsoft.nchwc."
ODD = {
    "a result in blocks": f"y = {NAMED}ReorderInput(x) p = {NAMED}MaxPool<kernel_shape = [2,2]>(y)",
    "planes told to be blocks": f"y = {NAMED}ReorderOutput<channels = 20>(x)",
    "a pool of planes": f"""p = {NAMED}AveragePool<kernel_shape = [2,2]>(x)
        y = {NAMED}ReorderOutput<channels = 20>(p)""",
    "blocks in a branch": f"""t = {NAMED}ReorderInput(x)
        u = If(c) <then_branch = a () => (float[n,d,e,f] p) {{ p = Softmax<axis = 1>(t) }},
            else_branch = b () => (float[n,d,e,f] q) {{ q = Relu(t) }}>
        y = {NAMED}ReorderOutput<channels = 20>(u)""",
}


@BLOCKS
@pytest.mark.parametrize("name", ODD)
def test_blocks_that_do_not_become_planes_are_left_to_onnxruntime(name: str) -> None:
    """Nobody saves such a file, and everybody may write one."""
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft.nchwc" : 1]>
        g (float[n,32,h,w] x) => (float[n,d,e,f] y) <bool c = {{1}}> {{ {ODD[name]} }}"""
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 32, 5, 6), np.float32)}
    (expected,) = session.run(None, feeds)
    (y,) = dvm_graph.optimize(model).run(feeds)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@BLOCKS
def test_operators_over_blocks_without_operands_are_model_errors() -> None:
    node = helper.make_node("ReorderInput", [], ["y"], domain="com.microsoft.nchwc")
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [], [out]), opset_imports=opsets)
    with pytest.raises(dvm_graph.DvmError) as caught:
        dvm_graph.optimize(model)
    assert not isinstance(caught.value, dvm_graph.CompileError)
