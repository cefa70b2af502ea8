"""Products whose B is given at run time, packed by a stage of its own: equal to onnxruntime's, whatever the machine and the
weights.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, assert_same_gaps, session

PACKED = re.compile(r"d_pack_b(_transformed)?_\w+ \S+ p")
"""Into memory; within a kernel, panels are local."""
TRANSFORMED = "d_pack_b_transformed_f32"


def model_of(
    nodes: Sequence[onnx.NodeProto], dtype: int = 1, **inputs: list[object]
) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(n, dtype, shape) for n, shape in inputs.items()]
    out = helper.make_tensor_value_info("y", dtype, None)
    graph = helper.make_graph(nodes, "g", values, [out])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def numbers(*shape: int, scale: float = 1.0) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) * np.float32(scale)


def convolution(kernel: int, **attributes: object) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return model_of(nodes, x=["n", "c", "h", "v"], w=["o", "i", kernel, kernel], b=["o"])


IMAGES = [(1, 56, 56), (3, 30, 21), (4, 14, 14), (1, 37, 6), (2, 4, 4)]


@pytest.mark.parametrize("machine", ["zen4", "zen2", "icelake-server", "neoverse"])
@pytest.mark.parametrize("cores", [1, 2, 16])
@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        (3, {"pads": [1, 1, 1, 1]}),
        (3, {"pads": [1, 0, 2, 1], "strides": [2, 2]}),
        (3, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
        (5, {"pads": [2, 2, 2, 2]}),
        (3, {"pads": [1, 1, 1, 1], "group": 2}),
    ],
)
def test_convolutions(
    kernel: int,
    attributes: dict[str, object],
    cores: int,
    machine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DVM_MACHINE", machine)
    model = convolution(kernel, **attributes)
    mine, reference = dvm_graph.optimize(model, cores=cores), session(model)
    for channels, results in (32, 32), (64, 100), (6, 34):
        taps = channels // attributes.get("group", 1) * kernel**2
        for n, h, w in IMAGES:
            feeds = {
                "x": numbers(n, channels, h, w),
                "w": numbers(results, taps // kernel**2, kernel, kernel, scale=taps**-0.5),
                "b": numbers(results),
            }
            assert_all_close(mine.run(feeds), reference.run(None, feeds), reduction_length=taps)


def given(
    channels: int, results: int, size: int, pad: int = 1, groups: int = 1, apart: int = 1
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Of known weights' shapes, as those of a training step are."""
    moves = {"pads": [pad] * 4, "group": groups, "dilations": [apart] * 2}
    node = helper.make_node("Conv", ["x", "w"], ["y"], **moves)
    each = channels // groups
    model = model_of([node], x=["n", channels, "h", "v"], w=[results, each, 3, 3])
    weights = numbers(results, each, 3, 3, scale=(9 * each) ** -0.5)
    return model, {"x": numbers(2, channels, size, size), "w": weights}


@pytest.mark.parametrize(
    ("channels", "results", "groups", "apart"),
    [(32, 32, 1, 1), (64, 100, 1, 1), (128, 128, 1, 1), (96, 120, 3, 1), (64, 64, 1, 2)],
)
def test_weights_are_transformed(
    channels: int, results: int, groups: int, apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVM_MACHINE", "zen4")
    model, feeds = given(channels, results, 56, apart, groups, apart)
    mine, reference = dvm_graph.optimize(model), session(model)
    assert TRANSFORMED in mine.disassemble(feeds)
    direct = dvm_graph.optimize(model, winograd=False)
    assert TRANSFORMED not in direct.disassemble(feeds)
    for size in 56, 30, 9:
        feeds["x"] = numbers(2, channels, size, size + 3)
        expected = reference.run(None, feeds)
        for found in mine.run(feeds), direct.run(feeds):
            assert_all_close(found, expected, reduction_length=9 * channels)


@pytest.mark.parametrize("weight", [np.inf, np.nan, 3e38, 2.0**20])
@pytest.mark.parametrize("result", [0, 40, 99])
def test_huge_weights_stay_in_their_results(
    weight: float, result: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVM_MACHINE", "zen4")
    model, feeds = given(64, 100, 40, pad=0)  # infinity times padding is no number
    mine = dvm_graph.optimize(model)
    assert TRANSFORMED in mine.disassemble(feeds)
    feeds["w"][result, 5, 0, 2] = weight
    (expected,) = session(model).run(None, feeds)
    (found,) = mine.run(feeds)
    others = np.arange(100) != result
    assert_all_close([found[:, others]], [expected[:, others]], reduction_length=9 * 64)
    assert_same_gaps(found, expected)
    if weight == 2.0**20:
        assert_all_close([found[:, ~others]], [expected[:, ~others]], reduction_length=9 * 64)


def product(batched: bool, transposed: bool, dtype: int) -> onnx.ModelProto:
    nodes, b = [], "w"
    if transposed:
        axes = [0, 2, 1] if batched else [1, 0]
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=axes))
        b = "t"
    nodes += [helper.make_node("MatMul", ["x", b], ["p"]), helper.make_node("Tanh", ["p"], ["y"])]
    matrix: list[object] = ["n", "k"] if transposed else ["k", "n"]
    return model_of(nodes, dtype, x=["b", "m", "k"], w=["b", *matrix] if batched else matrix)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(
    ("machine", "cores", "b", "m", "k", "n"),
    [
        ("zen2", 2, 4, 1300, 2048, 33),
        ("zen2", 16, 2, 300, 2048, 70),
        ("generic", 16, 1, 700, 2049, 33),
    ],
)
def test_matrices(
    machine: str,
    cores: int,
    b: int,
    m: int,
    k: int,
    n: int,
    batched: bool,
    transposed: bool,
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DVM_MACHINE", machine)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = product(batched, transposed, kind)
    shape = (n, k) if transposed else (k, n)
    feeds = {
        "x": numbers(b, m, k, scale=k**-0.5).astype(dtype),
        "w": numbers(*((b,) if batched else ()), *shape).astype(dtype),
    }
    mine = dvm_graph.optimize(model, cores=cores)
    if dtype == "float32" and not batched:
        assert PACKED.search(mine.disassemble(feeds))
    assert_all_close(mine.run(feeds), session(model).run(None, feeds), reduction_length=k)


def test_weights_whose_batch_axes_change_places() -> None:
    """No one stride leads from each of their matrices to the next."""
    weights = numbers(3, 2, 40, 48)
    model = model_of(
        [helper.make_node("Einsum", ["x", "w"], ["y"], equation="abmk,bakn->abmn")],
        x=[2, 3, "m", 40],
    )
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    for m in (1, 17):
        feeds = {"x": numbers(2, 3, m, 40)}
        assert_all_close(mine.run(feeds), reference.run(None, feeds), reduction_length=40)
