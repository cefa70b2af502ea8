"""Fourier transforms as products, without the vendor library.

Against numpy in float64: onnxruntime transforms lengths that are no powers of two by way of chirps, in float32 to about four
digits. Models are those that it runs, and shapes its own.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, session

DTYPES = (np.float32, np.float64)
LENGTHS = (1, 2, 3, 8, 9, 16, 17)


def model_of(
    operator: str,
    opset: int,
    operands: list[str],
    constants: dict[str, Array],
    inputs: dict[str, list[int | str]],
    dtype: type[np.generic] = np.float32,
    **attrs: Any,
) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node(operator, operands, ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info(name, element, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])


def signals(shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def numbers(x: Array) -> Array:
    """Pairs, or single parts, along the last axis as complex numbers of float64."""
    wide = x.astype(np.float64)
    return wide[..., 0] + (1j * wide[..., 1] if x.shape[-1] == 2 else 0)


def pairs(x: Array, dtype: type[np.generic]) -> Array:
    return np.stack((x.real, x.imag), axis=-1).astype(dtype)


def check(model: onnx.ModelProto, feeds: dict[str, Array], expected: Array, length: int) -> None:
    (theirs,) = session(model).run(None, feeds)
    assert theirs.shape == expected.shape
    mine = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_all_close(mine, [expected], reduction_length=length)


def dft(
    opset: int,
    shape: list[int | str],
    axis: int,
    length: int | None,
    dtype: type[np.generic],
    **attrs: int,
) -> onnx.ModelProto:
    operands, constants = ["x", "" if length is None else "length"], {}
    if length is not None:
        constants["length"] = np.array(length)
    if opset < 20:
        attrs["axis"] = axis
    else:
        constants["axis"] = np.array(axis)
        operands.append("axis")
    return model_of("DFT", opset, operands, constants, {"x": shape}, dtype, **attrs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("length", [None, 4, 5, 16])
def test_spectra(opset: int, axis: int, length: int | None, dtype: type[np.generic]) -> None:
    for count, parts, inverse, onesided in itertools.product(LENGTHS, (1, 2), (0, 1), (0, 1)):
        if onesided and (parts == 2 or inverse):
            continue
        shape = (2, count, 3, parts) if axis == 1 else (2, 3, count, parts)
        attrs = {"inverse": inverse, "onesided": onesided}
        model = dft(opset, ["batch", *shape[1:]], axis, length, dtype, **attrs)
        x = signals(shape, dtype)
        transform = np.fft.ifft if inverse else np.fft.fft
        expected = transform(numbers(x), length, axis)
        if onesided:
            expected = expected.take(range((length or count) // 2 + 1), axis)
        check(model, {"x": x}, pairs(expected, dtype), length or count)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [1, 2, -2])
def test_real_signals_from_half_spectra(axis: int, dtype: type[np.generic]) -> None:
    for length in LENGTHS[1:]:
        bins = length // 2 + 1
        shape = (2, bins, 3, 2) if axis == 1 else (2, 3, bins, 2)
        model = dft(20, ["batch", *shape[1:]], axis, length, dtype, inverse=1, onesided=1)
        x = signals(shape, dtype)
        at = axis if axis > 0 else 2
        expected = np.fft.irfft(numbers(x), length, at)[..., None].astype(dtype)
        check(model, {"x": x}, expected, length)


def stft(
    parts: int,
    length: int,
    step: int,
    window: str,
    dtype: type[np.generic] = np.float32,
    onesided: int = 1,
    given: bool = True,
) -> onnx.ModelProto:
    """`window` is one of none, constant and input."""
    operands = ["x", "step", "" if window == "none" else "window"]
    constants = {"step": np.array(step)}
    inputs: dict[str, list[int | str]] = {"x": ["batch", "samples", parts]}
    if window == "constant":
        constants["window"] = signals((length,), dtype)
    elif window == "input":
        inputs["window"] = [length]
    if given:
        constants["length"] = np.array(length)
        operands.append("length")
    return model_of("STFT", 17, operands, constants, inputs, dtype, onesided=onesided)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", ["none", "constant", "input"])
@pytest.mark.parametrize(("parts", "onesided"), [(1, 1), (1, 0), (2, 0)])
@pytest.mark.parametrize(("length", "step"), [(16, 4), (7, 3), (8, 8), (9, 11)])
def test_spectra_of_frames(
    parts: int, onesided: int, length: int, step: int, window: str, dtype: type[np.generic]
) -> None:
    given = window != "constant"
    model = stft(parts, length, step, window, dtype, onesided, given)
    for samples in (16, 29, 40):
        feeds = {"x": signals((2, samples, parts), dtype)}
        factors = np.ones(length) if window == "none" else signals((length,), dtype)
        if window == "input":
            feeds["window"] = factors.astype(dtype)
        starts = range(0, samples - length + 1, step)
        frames = [numbers(feeds["x"])[:, start : start + length] * factors for start in starts]
        expected = np.fft.fft(np.stack(frames, axis=1), axis=-1)
        if onesided:
            expected = expected[..., : length // 2 + 1]
        check(model, feeds, pairs(expected, dtype), length)


def test_signals_shorter_than_frames() -> None:
    model = dvm_graph.optimize(stft(1, 16, 4, "none"), strict=True)
    with pytest.raises(dvm_graph.DvmError, match="shorter than its frames"):
        model.run({"x": signals((1, 15, 1))})


def test_whole_batches_of_nothing() -> None:
    (y,) = dvm_graph.optimize(stft(1, 16, 4, "none"), strict=True).run({"x": signals((0, 40, 1))})
    assert y.shape == (0, 7, 9, 2)


@pytest.mark.parametrize(("length", "native"), [(512, True), (1000, True), (4096, False)])
def test_long_transforms_are_left_to_the_vendor_library(length: int, native: bool) -> None:
    """Whose number of steps does not grow with the square of the length."""
    model = dft(17, ["batch", length, 1], 1, None, np.float32)
    report = str(dvm_graph.optimize(model).report())
    assert ("0 vendor operators" in report) == native
    x = signals((2, length, 1))
    expected = pairs(np.fft.fft(numbers(x), axis=1), np.float32)
    assert_all_close(dvm_graph.optimize(model).run({"x": x}), [expected], reduction_length=length)
