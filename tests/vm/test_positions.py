"""What is counted along axes: results of operators that read at points or compare positions, and what their kernels run."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray

import dvm_graph
from dvm_graph import _core

_TYPES = {"float": np.float32, "float16": np.float16, "int64": np.int64, "uint8": np.uint8}
_EXTENTS = (1, 2, 3, 7, 16, 17, 33, 100, 300)


def _model(inputs: str, output: str, body: str) -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["" : 21]>'
    return onnx.parser.parse_model(f"{head} g ({inputs}) => ({output} y) {{ {body} }}")


def _elements(dtype: str, rank: int, axis: int) -> onnx.ModelProto:
    of_x, of_index = (", ".join(f"{name}{i}" for i in range(rank)) for name in "xi")
    inputs = f"{dtype}[{of_x}] x, int64[{of_index}] i"
    return _model(inputs, f"{dtype}[{of_index}]", f"y = GatherElements <axis = {axis}> (x, i)")


def _taken(x: NDArray[np.generic], index: NDArray[np.int64], axis: int) -> NDArray[np.generic]:
    """Of an x that may be longer than the index along other axes."""
    kept = tuple(
        slice(None) if i == axis else slice(extent) for i, extent in enumerate(index.shape)
    )
    return np.take_along_axis(x[kept], np.where(index < 0, index + x.shape[axis], index), axis)


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("dtype", _TYPES)
def test_elements_are_gathered(dtype: str, simd: str) -> None:
    draw, numbers = random.Random(len(simd)), np.random.default_rng(0)
    for rank in range(1, 4):
        for axis in range(rank):
            model = dvm_graph.optimize(_elements(dtype, rank, axis), simd=simd, cores=2)
            for _ in range(6):
                shape = draw.choices(_EXTENTS[: 12 - 3 * rank], k=rank)
                of_index = [draw.randint(1, extent) for extent in shape]
                of_index[axis] = draw.choice(_EXTENTS)
                x = numbers.integers(0, 100, shape).astype(_TYPES[dtype])
                index = numbers.integers(-shape[axis], shape[axis], of_index)
                y = model.run({"x": x, "i": index})[0]
                np.testing.assert_array_equal(y, _taken(x, index, axis), f"{shape} {of_index}")


def test_elements_of_rows_repeated_along_the_others() -> None:
    """What detectors do with the boxes of the best queries."""
    body = "n = Expand (i, s)  y = GatherElements <axis = 1> (x, n)"
    model = _model("float[b, q, 4] x, int64[b, k, 1] i, int64[3] s", "float[b, k, 4]", body)
    x = np.random.default_rng(0).standard_normal((2, 50, 4)).astype(np.float32)
    index = np.random.default_rng(1).integers(0, 50, (2, 9, 1))
    y = dvm_graph.optimize(model).run({"x": x, "i": index, "s": np.array([2, 9, 4])})[0]
    np.testing.assert_array_equal(y, np.take_along_axis(x, index.repeat(4, 2), 1))


@pytest.mark.parametrize("axis", [0, 1])
def test_one_instruction_gathers_elements(axis: int) -> None:
    model = dvm_graph.optimize(_elements("float", 2, axis), cores=2)
    feeds: dict[str, NDArray[Any]] = {
        "x": np.zeros((90, 70), np.float32),
        "i": np.zeros((90, 70), np.int64),
    }
    assert _run(model.disassemble(feeds)) == {"d_gather_f32"}


@pytest.mark.parametrize(("axis", "index"), [(0, 5), (0, -6), (1, 7), (1, -8)])
def test_elements_outside_are_an_error(axis: int, index: int) -> None:
    model = dvm_graph.optimize(_elements("float", 2, axis))
    points = np.zeros((5, 7), np.int64)
    points[3, 2] = index
    with pytest.raises(dvm_graph.DvmError, match=re.escape(str(index))):
        model.run({"x": np.zeros((5, 7), np.float32), "i": points})


def _run(text: str) -> set[str]:
    return set(re.findall(r"^ +([dv]_\w+) ", text, re.MULTILINE))


_SMALL = (
    ("float[a, b] x", "y = Trilu (x)", np.triu),
    (
        "float[a, b] x",
        "y = EyeLike <k = 1> (x)",
        lambda x: np.eye(x.shape[0], x.shape[1], 1, dtype=x.dtype),
    ),
    ("float[a, b] x", "y = ArgMax <axis = 0, keepdims = 0> (x)", lambda x: x.argmax(0)),
    ("float[a, b] x", "y = ArgMin <axis = 1, keepdims = 0> (x)", lambda x: x.argmin(1)),
    (
        "float[a, b] x",
        "y = ArgMax <axis = 1, keepdims = 0, select_last_index = 1> (x)",
        lambda x: x.shape[1] - 1 - x[:, ::-1].argmax(1),
    ),
    (
        "float[a, b] x",
        "y = Hardmax <axis = 1> (x)",
        lambda x: (np.arange(x.shape[1]) == x.argmax(1)[:, None]).astype(x.dtype),
    ),
    (
        "bool[a, b] x",
        "n = Cast <to = 7> (x)  y = ReduceSum <keepdims = 0> (n)",
        lambda x: x.sum(dtype=np.int64),
    ),
)


@pytest.mark.parametrize(("inputs", "body", "reference"), _SMALL)
def test_positions_within_32_bits(inputs: str, body: str, reference: Callable[[Any], Any]) -> None:
    kind = "int64" if "Arg" in body or "Sum" in body else "float"
    rank = "" if "Sum" in body else "c" if "Arg" in body else "c, d"
    model = dvm_graph.optimize(_model(inputs, f"{kind}[{rank}]", body), strict=True, cores=2)
    for shape in itertools.product((1, 3, 17, 130), repeat=2):
        drawn = np.random.default_rng(0).integers(-3, 4, shape)
        x: Any = drawn > 0 if inputs.startswith("bool") else drawn.astype(np.float32)
        y = model.run({"x": x})[0]
        np.testing.assert_array_equal(y, reference(x), f"{shape}")
    wide = {name for name in _run(model.disassemble({"x": x})) if name.endswith("_i64")}
    small = {"v_iota_i64", "v_cast_to_i32_i64", "v_select_i64"}  # a row, or what a reduction leaves
    winners = {"v_eq_i64"} if "Hardmax" in body else set()  # of another kernel
    assert wide <= small | winners, wide


def test_positions_beyond_32_bits() -> None:
    """What no 32 bits hold is compared as it is."""
    start, extent = 2**31 - 3, 8
    body = (
        "n = Shape (x)  k = Squeeze (n)  e = Add (s, k)  r = Range (s, e, one)  y = Greater (r, m)"
    )
    constants = f"<int64 s = {{{start}}}, int64 one = {{1}}, int64 m = {{{2**31 - 1}}}>"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[d] x) => (bool[n] y) {constants}'
        f" {{ {body} }}"
    )
    y = dvm_graph.optimize(model).run({"x": np.zeros(extent, np.float32)})[0]
    np.testing.assert_array_equal(y, np.arange(start, start + extent) > 2**31 - 1)


@pytest.mark.parametrize("axis", [0, 1])
def test_positions_where_numbers_are_nan(axis: int) -> None:
    """As onnxruntime's search: NaN wins only as the first element."""
    body = f"y = ArgMax <axis = {axis}, keepdims = 0> (x)"
    model = dvm_graph.optimize(_model("float[a, b] x", "int64[c]", body))
    x = np.array([[1, np.nan, 2], [np.nan, 3, 1], [5, 5, np.nan]], np.float32)
    expected = {0: [2, 0, 0], 1: [2, 0, 0]}[axis]
    np.testing.assert_array_equal(model.run({"x": x})[0], expected)
