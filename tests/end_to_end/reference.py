"""The reference of the end-to-end tests: onnxruntime, without its own optimisations.

Purpose: run a model in onnxruntime, and compare results with it by the table in `tests.tolerances`.
Invariant: onnxruntime's graph optimisations are off, so that the reference computes what the model
says, operator by operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort

import dvm_graph
from tests.tolerances import assert_close

Array: TypeAlias = np.ndarray[Any, Any]


def session(model: onnx.ModelProto | str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model if isinstance(model, str) else model.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def assert_all_close(
    actual: Sequence[Array],
    expected: Sequence[Array],
    reduction_length: int = 1,
    precision: np.dtype[Any] | None = None,
) -> None:
    """As `assert_close`, output by output and relative to the largest magnitude of each.

    What is small beside its neighbours is often a difference of large numbers. `precision` is the
    least precise floating-point type on the way to the results, where it is not their own.
    """
    for mine, theirs in zip(actual, expected, strict=True):
        scale = _magnitude(theirs)
        if scale > 1 and mine.dtype == theirs.dtype:
            mine, theirs = mine / scale, theirs / scale
        exact = mine.dtype.kind in "iub"
        assert_close(mine, theirs, None if exact else precision, reduction_length)


def _magnitude(array: Array) -> Any:
    """The largest finite magnitude, in the array's own dtype; 1 where it has to match exactly."""
    if array.dtype.kind in "iub":
        return array.dtype.type(1)
    return np.max(np.abs(array), where=np.isfinite(array), initial=array.dtype.type(1))


def assert_same_bits(actual: Sequence[Array], expected: Sequence[Array]) -> None:
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        assert mine.tobytes() == theirs.tobytes()


def assert_same_gaps(actual: Array, expected: Array) -> None:
    """Infinities and NaNs are at the same places."""
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(actual), np.isinf(expected))


def parsed(text: str, opset: int = 21, **constants: Array) -> onnx.ModelProto:
    """A model of ir version 10 from the text of its graph, and constants that the text only names."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    for name, data in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    return model


def model_from_text(text: str, opset: int = 21) -> onnx.ModelProto:
    """As `parsed`, checked."""
    model = parsed(text, opset)
    onnx.checker.check_model(model, full_check=True)
    return model


Feeds: TypeAlias = Mapping[str, "Array | tuple[int, ...]"]
"""By input: an array, or the shape of normally distributed float32."""


def assert_agrees(
    text: str,
    *runs: Feeds,
    constants: Mapping[str, Array] | None = None,
    opset: int = 21,
    strict: bool = False,
) -> None:
    """A model, compiled once, gives what onnxruntime gives, in each of some runs: shapes, types and numbers.

    A decomposition that breaks leaves its operator to onnxruntime, so that nothing is wrong: `strict` tells.
    """
    model = parsed(text, opset, **constants or {})
    reference, compiled = session(model), dvm_graph.optimize(model, strict=strict)
    generator = np.random.default_rng(0)
    for run in runs:
        feeds = {
            name: generator.standard_normal(fed, np.float32) if isinstance(fed, tuple) else fed
            for name, fed in run.items()
        }
        expected = reference.run(None, feeds)
        actual = compiled.run(feeds)
        for mine, theirs in zip(actual, expected, strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), known_dims(feeds)
        assert_all_close(actual, expected, 64)


def known_dims(feeds: Mapping[str, Array]) -> str:
    """The shapes of feeds, for messages."""
    return ", ".join(f"{name}: {list(array.shape)}" for name, array in feeds.items())
