"""Small models that random graphs once broke: statistics and parameters of normalisations."""

from __future__ import annotations

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.reference import (
    assert_all_close,
    assert_same_bits,
    model_from_text,
    session,
)


def test_equal_numbers_have_no_variance() -> None:
    """Of them the standard's function makes 0, which it divides by a little; onnxruntime's kernel by 0."""
    model = model_from_text(
        "g (float[a, b, c, d] x) => (float[a, b, c, d] y) { y = MeanVarianceNormalization<axes = [0, 2, 3]>(x) }"
    )
    x = np.full((2, 3, 1, 4), 0.5, np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    assert_same_bits([y], [np.zeros_like(x)])


@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
def test_statistics_of_a_normalisation_are_stashed_in_float32(dtype: str) -> None:
    """Where the model does not declare them, they had the type that they are computed in."""
    model = model_from_text(
        f"""g ({dtype}[n, 3] x, {dtype}[3] s) => ({dtype}[n, 3] y, float[n, 1] d) {{
            y, average, inverse = LayerNormalization(x, s)
            d = Add(average, inverse)
        }}"""
    )
    kind = {"float": np.float32, "double": np.float64, "float16": np.float16}[dtype]
    feeds = {"x": np.arange(6).reshape(2, 3).astype(kind), "s": np.ones(3, kind)}
    mine, theirs = dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds)
    assert [a.dtype for a in mine] == [a.dtype for a in theirs]
    assert_all_close(mine, theirs, 3)


@pytest.mark.parametrize("op", ["BatchNormalization", "InstanceNormalization"])
def test_parameters_of_channels_do_not_broadcast(op: str) -> None:
    """Names of extents that differ made the result's extent one that might be either, and kernels two."""
    names = "scale, shift, mean, variance" if op == "BatchNormalization" else "scale, shift"
    ports = ", ".join(f"float[c{i}] {name}" for i, name in enumerate(names.split(", ")))
    model = dvm_graph.optimize(
        model_from_text(
            f"g (float[n, c, w] x, {ports}) => (float[n, c, w] y) {{ y = {op}(x, {names}) }}"
        )
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    feeds = {"x": x} | {name: np.ones(3, np.float32) for name in names.split(", ")}
    centred = x - (0 if op == "BatchNormalization" else x.mean(2, keepdims=True))
    variance = 1 if op == "BatchNormalization" else x.var(2, keepdims=True)
    moved = centred - 1 if op == "BatchNormalization" else centred
    np.testing.assert_allclose(
        model.run(feeds)[0], moved / np.sqrt(variance + 1e-5) + 1, 1e-5, 1e-5
    )
    with pytest.raises(dvm_graph.ShapeError, match="channel"):
        model.run(feeds | {"shift": np.ones(1, np.float32)})
