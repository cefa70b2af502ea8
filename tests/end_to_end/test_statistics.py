"""Statistics over some of the axes, read back over all of them: norms of groups and their kin, whatever lies innermost."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, session

AXES = [axes for count in range(1, 5) for axes in itertools.combinations(range(4), count)]


def norm_over(axes: tuple[int, ...]) -> onnx.ModelProto:
    """(x - mean) / sqrt(variance + epsilon) of [p, q, r, s], times a number for each of the last axis."""
    model = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["x", "axes"], ["mean"]),
            helper.make_node("Sub", ["x", "mean"], ["centred"]),
            helper.make_node("Mul", ["centred", "centred"], ["square"]),
            helper.make_node("ReduceMean", ["square", "axes"], ["variance"]),
            helper.make_node("Add", ["variance", "epsilon"], ["more"]),
            helper.make_node("Sqrt", ["more"], ["deviation"]),
            helper.make_node("Div", ["centred", "deviation"], ["y"]),
            helper.make_node("Mul", ["y", "gain"], ["z"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["p", "q", "r", "s"]),
            helper.make_tensor_value_info("gain", onnx.TensorProto.FLOAT, ["s"]),
        ],
        [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.array(axes, np.int64), "axes"),
            numpy_helper.from_array(np.float32(1e-3), "epsilon"),
        ],
    )
    return helper.make_model(model, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("fallbacks", ["if_needed", "always"])
@pytest.mark.parametrize("axes", AXES)
def test_any_axes(axes: tuple[int, ...], fallbacks: str) -> None:
    """Short innermost axes, reduced and not, beside others of more and of fewer elements than a line or a tile holds."""
    model = dvm_graph.optimize(norm_over(axes), fallbacks=fallbacks)
    generator = np.random.default_rng(0)
    shapes = [
        (2, 300, 32, 2),
        (1, 37, 9, 3),
        (3, 5, 4, 16),
        (2, 3, 700, 5),
        (1, 2000, 12, 4),
        (4, 3, 2, 1),
    ]
    for shape in (*shapes, (1, 70, 5, 40), (2, 0, 3, 2)):
        x = generator.standard_normal(shape, np.float32) + 1
        gain = generator.standard_normal(shape[3:], np.float32)
        (z,) = model.run({"x": x, "gain": gain})
        wide = x.astype(np.float64)
        if x.size:
            wide -= wide.mean(axes, keepdims=True)
            wide /= np.sqrt(np.square(wide).mean(axes, keepdims=True) + np.float32(1e-3))
        np.testing.assert_allclose(z, wide * gain, rtol=2e-5, atol=2e-5, err_msg=f"{shape}")


def group_norm(form: str, channels: int, groups: int, kernel: int, dtype: type) -> onnx.ModelProto:
    """Convolution, norm of groups, rectifier and convolution: as the operator, or as exporters write it out."""
    generator = np.random.default_rng(channels)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def constant(name: str, array: Array) -> onnx.TensorProto:
        return numpy_helper.from_array(array, name)

    def normal(*shape: int) -> Array:
        return generator.standard_normal(shape).astype(dtype)

    pads = [kernel // 2] * 4
    scale = math.sqrt(channels) * kernel
    weights = [
        constant(name, (normal(channels, channels, kernel, kernel) / scale).astype(dtype))
        for name in ("w", "v")
    ]
    per_group = form == "operator of groups"
    if form == "written out":
        nodes = [
            helper.make_node("Reshape", ["c", "rows"], ["r"]),
            helper.make_node("InstanceNormalization", ["r", "ones", "zeros"], ["i"]),
            helper.make_node("Shape", ["c"], ["shape"]),
            helper.make_node("Reshape", ["i", "shape"], ["j"]),
            helper.make_node("Mul", ["j", "gain"], ["m"]),
            helper.make_node("Add", ["m", "shift"], ["n"]),
        ]
        weights += [
            constant("rows", np.array([0, groups, -1])),
            constant("ones", normal(groups)),
            constant("zeros", normal(groups)),
            constant("gain", normal(channels, 1, 1)),
            constant("shift", normal(channels, 1, 1)),
        ]
    else:
        nodes = [
            helper.make_node(
                "GroupNormalization", ["c", "gain", "shift"], ["n"], num_groups=groups, epsilon=1e-3
            )
        ]
        parameters = groups if per_group else channels
        weights += [constant("gain", normal(parameters)), constant("shift", normal(parameters))]
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=pads),
            *nodes,
            helper.make_node("Relu", ["n"], ["a"]),
            helper.make_node("Conv", ["a", "v"], ["y"], pads=pads),
        ],
        "g",
        [helper.make_tensor_value_info("x", element, ["n", channels, "h", "w"])],
        [helper.make_tensor_value_info("y", element, None)],
        weights,
    )
    opset = helper.make_opsetid("", 18 if per_group else 21)
    return helper.make_model(graph, ir_version=10, opset_imports=[opset])


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(
    ("channels", "groups"), [(64, 32), (24, 8), (32, 8), (20, 2), (6, 6), (34, 1)]
)
@pytest.mark.parametrize("form", ["operator", "operator of groups", "written out"])
def test_norms_of_groups(form: str, channels: int, groups: int, kernel: int) -> None:
    model = group_norm(form, channels, groups, kernel, np.float32)
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    generator = np.random.default_rng(1)
    for batch, height, width in ((1, 40, 40), (3, 9, 7), (2, 3, 2), (1, 64, 3)):
        x = generator.standard_normal((batch, channels, height, width), np.float32)
        assert_all_close(
            mine.run({"x": x}), reference.run(None, {"x": x}), reduction_length=channels * kernel**2
        )


def test_norms_of_groups_stay_channels_last() -> None:
    """No kernel beside the products and the norm moves the image."""
    model = dvm_graph.optimize(group_norm("written out", 64, 32, 1, np.float32), strict=True)
    assert model.report().kernels == 3


@pytest.mark.parametrize("shape", [(1, 10, 64, 2), (1, 50, 32, 2), (1, 120, 32, 4)])
def test_sums_of_groups_have_few_tiles(shape: tuple[int, ...]) -> None:
    """However many cores there are, none reads a piece of a line, and no kernel is compiled operator by operator."""
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["p", "q", "r", "s"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([1, 3]), "axes")],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    mine = dvm_graph.optimize(model, cores=16)
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    tiles = [
        int(found) for found in re.findall(r"^ *tiles (\d+)", mine.disassemble({"x": x}), re.M)
    ]
    assert tiles and max(tiles) <= 16
    np.testing.assert_allclose(
        mine.run({"x": x})[0], x.sum((1, 3), keepdims=True), rtol=1e-4, atol=1e-4
    )


def sums_inside(op: str, dtype: type) -> onnx.ModelProto:
    """Over images and pixels, of what lies within a frame of one pixel: no two of their axes are one."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [
            helper.make_node("Slice", ["x", "begin", "end", "inside"], ["image"]),
            helper.make_node("Mul", ["image", "image"], ["square"]),
            helper.make_node(op, ["square", "axes"], ["y"], keepdims=0),
            helper.make_node("Sub", ["image", "image"], ["zero"]),
            helper.make_node("Add", ["zero", "y"], ["z"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", element, ["p", "q", "r", "s"])],
        [helper.make_tensor_value_info(name, element, None) for name in ("y", "square", "z")],
        [
            numpy_helper.from_array(np.array(values, np.int64), name)
            for name, values in {
                "begin": [1, 1],
                "end": [-1, -1],
                "inside": [1, 2],
                "axes": [0, 1, 2],
            }.items()
        ],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("cores", [1, 2, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax"])
def test_sums_over_images_and_pixels(op: str, dtype: type, cores: int) -> None:
    """Split along images, rows and pixels, whichever are long enough: the same at any number of cores."""
    model = dvm_graph.optimize(sums_inside(op, dtype), cores=cores, strict=True)
    generator = np.random.default_rng(2)
    for shape in ((4, 58, 58, 48), (1, 114, 90, 3), (5, 9, 300, 16), (3, 3, 3, 700), (2, 40, 2, 8)):
        x = (generator.standard_normal(shape) * 9).astype(dtype)
        square = np.square(x[:, 1:-1, 1:-1])
        if op == "ReduceMax":
            if not square.size:
                continue
            y = square.max((0, 1, 2))
        else:
            y = square.sum((0, 1, 2), dtype=np.float64 if dtype is np.float32 else dtype)
        found = model.run({"x": x})
        np.testing.assert_array_equal(found[1], square)
        np.testing.assert_allclose(found[0], y, rtol=2e-5 if dtype is np.float32 else 0)
        np.testing.assert_array_equal(found[2], np.broadcast_to(found[0], square.shape))


def test_sums_over_images_and_pixels_read_whole_rows() -> None:
    """However few images there are: channels are not cut."""
    model = dvm_graph.optimize(sums_inside("ReduceSum", np.float32))
    listing = model.disassemble({"x": np.ones((4, 58, 58, 48), np.float32)}).split("\nend")[0]
    assert re.search(r"tiles of \d+ in 56\b", listing)
    assert not re.search(r"tiles of \d+ in 48\b", listing)


def test_rows_that_are_summed_are_not_cut_where_there_are_enough() -> None:
    """They pass by as they are: more pieces of them would be more tiles to start."""
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "x"], ["square"]),
            helper.make_node("ReduceSum", ["square", "axes"], ["y"], keepdims=0),
        ],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["p", "q", "r"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([0, 2]), "axes")],
    )
    opset = helper.make_opsetid("", 18)
    model = dvm_graph.optimize(helper.make_model(graph, ir_version=10, opset_imports=[opset]))
    x = np.random.default_rng(4).standard_normal((3, 7, 40000)).astype(np.float32)
    y = np.square(x, dtype=np.float64).sum((0, 2))
    np.testing.assert_allclose(model.run({"x": x})[0], y, rtol=2e-5)
    assert "in 40000" not in model.disassemble({"x": x})
