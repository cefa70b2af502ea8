"""Windows with three spatial axes, against onnxruntime; none is left to it."""

from __future__ import annotations

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.reference import assert_all_close, model_from_text, session

_NODES = {
    "Conv <pads = [1, 0, 1, 1, 2, 1]> (x, k)": 54,
    'Conv <strides = [2, 1, 2], auto_pad = "SAME_UPPER"> (x, k)': 54,
    "Conv <dilations = [2, 1, 1], strides = [1, 2, 1]> (x, k, c)": 54,
    "Conv <group = 2, strides = [1, 2, 2]> (x, flat)": 9,
    "Conv (x, point)": 4,
    "Conv <group = 2, pads = [1, 1, 1, 1, 1, 1]> (x, thick)": 27,
    "Conv <group = 2, strides = [2, 1, 1], dilations = [2, 1, 1]> (x, thick)": 27,
    "Conv <group = 2, pads = [0, 1, 1, 2, 1, 1]> (x, apart)": 27,
    "ConvTranspose <strides = [2, 1, 2]> (x, k2)": 54,
    "ConvTranspose <strides = [1, 2, 3], pads = [1, 1, 0, 1, 0, 1]> (x, k2)": 54,
    "ConvTranspose <group = 2, strides = [2, 2, 2]> (x, apart)": 8,
    "MaxPool <kernel_shape = [2, 3, 2], strides = [2, 1, 2]> (x)": 1,
    "MaxPool <kernel_shape = [3, 3, 3], pads = [1, 1, 1, 1, 1, 1], ceil_mode = 1, strides = [2, 2, 2]> (x)": 1,
    "AveragePool <kernel_shape = [2, 2, 3], pads = [1, 0, 1, 0, 1, 1]> (x)": 12,
    "AveragePool <kernel_shape = [2, 2, 3], pads = [1, 0, 1, 0, 1, 1], count_include_pad = 1> (x)": 12,
    "LpPool <kernel_shape = [2, 2, 2]> (x)": 8,
    'Resize <mode = "nearest"> (x, , scales)': 1,
    'Resize <mode = "linear"> (x, , scales)': 8,
}


@pytest.mark.parametrize("node", _NODES)
def test_equals_onnxruntime_over_shapes(node: str) -> None:
    generator = np.random.default_rng(0)
    weights = {
        "k": (3, 2, 3, 3, 3),
        "c": (3,),
        "flat": (4, 1, 1, 3, 3),
        "point": (5, 2, 1, 1, 1),
        "thick": (4, 1, 3, 3, 3),
        "apart": (2, 1, 3, 3, 3),
        "k2": (2, 3, 3, 3, 3),
    }
    constants = ", ".join(
        f"float{list(shape)} {name} = {{{', '.join(f'{n:.3f}' for n in generator.standard_normal(np.prod(shape)))}}}"
        for name, shape in weights.items()
    )
    model = model_from_text(f"""
        g (float[n, 2, d, h, w] x) => (float[a, b, e, f, g] y)
        <{constants}, float[5] scales = {{1, 1, 2, 1, 3}}>
        {{ y = {node} }}""")
    compiled, reference = dvm_graph.optimize(model, strict=True), session(model)
    for extents in ((2, 5, 6, 7), (2, 8, 9, 5), (2, 5, 6, 7)):
        batch, *spatial = extents
        x = generator.standard_normal((batch, 2, *spatial)).astype(np.float32)
        expected = reference.run(None, {"x": x})
        assert_all_close(compiled.run({"x": x}), expected, _NODES[node])


def test_groups_of_several_channels_are_deep() -> None:
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((4, 3, 2, 3, 2)).astype(np.float32)
    numbers = ", ".join(f"{n:.3f}" for n in weights.reshape(-1))
    model = model_from_text(f"""
        g (float[n, 6, d, h, w] x) => (float[a, 4, e, f, g] y)
        <float[4, 3, 2, 3, 2] k = {{{numbers}}}>
        {{ y = Conv <group = 2, strides = [2, 1, 1], pads = [1, 1, 0, 0, 1, 1]> (x, k) }}""")
    x = generator.standard_normal((2, 6, 5, 4, 7)).astype(np.float32)
    actual = dvm_graph.optimize(model, strict=True, check=True).run({"x": x})
    assert_all_close(actual, session(model).run(None, {"x": x}), 36)
