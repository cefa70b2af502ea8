"""Rows of few elements that become neighbours, as where pixels are shuffled: vectors that move them reach into the next row."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import dvm_graph
from dvm_graph import _core


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("kind", ["float", "double", "int64", "uint8", "bool"])
def test_rows_become_neighbours(kind: str, simd: str) -> None:
    constants = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3}, int64[1] axis = {2}"
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    g ({kind}[a, b, c, d] x) => ({kind}[a2, c2, b2, d2] y, {kind}[a3, b3, d3] z) <{constants}> {{
        y = Transpose <perm = [0, 2, 1, 3]> (x)
        part = Slice(x, one, three, axis)
        first = Slice(part, zero, one, axis)
        z = Squeeze(first, axis)
    }}"""
    model = dvm_graph.optimize(onnx.parser.parse_model(text), strict=True, simd=simd)
    random = np.random.default_rng(2)
    for elements in (1, 2, 3, 4, 6, 7, 8, 9, 16, 31, 32, 33):
        for rows, between in ((1, 2), (15, 2), (16, 3), (17, 2), (40, 5), (130, 2)):
            x = random.integers(0, 2 if kind == "bool" else 100, (3, rows, between, elements))
            x = x.astype({"float": np.float32, "double": np.float64}.get(kind, kind))
            y, z = model.run({"x": x})
            np.testing.assert_array_equal(y, x.transpose(0, 2, 1, 3))
            np.testing.assert_array_equal(z, x[:, :, 1])
