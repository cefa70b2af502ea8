"""What moves numbers of 16 bits, by pairs where rows allow it: results bit for bit, and that they are paired."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray

import dvm_graph
from dvm_graph import _core

_TYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
}
_ROWS, _COLUMNS = (1, 2, 5, 70), (1, 2, 3, 8, 31, 32, 33, 64, 90, 256)


def _numbers(dtype: np.dtype[Any], *shape: int) -> NDArray[Any]:
    """Any bits but those of NaN, which a widened one may change."""
    bits = np.random.default_rng(shape).integers(0, 2**16, shape).astype(np.uint16)
    if dtype.kind not in "iu":
        bits[np.isnan(bits.view(dtype).astype(np.float32))] = 0x3C00
    return bits.view(dtype)


def _model(dtype: str, inputs: str, body: str) -> onnx.ModelProto:
    text = f"g ({inputs}) => (T[i, j] y) {{ {body} }}".replace("T[", f"{dtype}[")
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def _moved(op: str, x: NDArray[Any], at: NDArray[np.int64]) -> NDArray[Any]:
    rows, columns = x.shape
    return {
        "copy": lambda: x,
        "rows": lambda: x[at],
        "points": lambda: x[:, at % columns],
        "blocks": lambda: x.reshape(rows, 1, columns)[at, 0],
        "beside": lambda: np.concatenate([x, x], axis=1),
        "behind": lambda: np.concatenate([x, x[:1]], axis=0),
        "without the first": lambda: x[:, 1:],
        "without the first two": lambda: x[:, 2:],
        "every second row": lambda: x[::2],
        "every second": lambda: x[:, ::2],
        "the last first": lambda: x[::-1],
        "the last first in rows": lambda: x[:, ::-1],
        "turned": lambda: x.T,
        "repeated": lambda: np.tile(x, (3, 2)),
        "spread": lambda: np.broadcast_to(x[:1], x.shape),
    }[op]()


_SLICE = "st = Constant<value_ints = [{0}]>() en = Constant<value_ints = [{1}]>() ax = Constant<value_ints = [{2}]>()"
_SLICE += " sp = Constant<value_ints = [{3}]>() y = Slice(x, st, en, ax, sp)"
_ALL = 2**40
_BODIES = {
    "copy": "y = Identity(x)",
    "rows": "y = Gather<axis = 0>(x, at)",
    "points": "s = Shape<start = 1>(x) p = Mod(at, s) y = Gather<axis = 1>(x, p)",
    "blocks": "a = Constant<value_ints = [1]>() u = Unsqueeze(x, a) g = Gather<axis = 0>(u, at) y = Squeeze(g, a)",
    "beside": "y = Concat<axis = 1>(x, x)",
    "behind": _SLICE.format(0, 1, 0, 1).replace("y =", "z =") + " y = Concat<axis = 0>(x, z)",
    "without the first": _SLICE.format(1, _ALL, 1, 1),
    "without the first two": _SLICE.format(2, _ALL, 1, 1),
    "every second row": _SLICE.format(0, _ALL, 0, 2),
    "every second": _SLICE.format(0, _ALL, 1, 2),
    "the last first": _SLICE.format(-1, -_ALL, 0, -1),
    "the last first in rows": _SLICE.format(-1, -_ALL, 1, -1),
    "turned": "y = Transpose<perm = [1, 0]>(x)",
    "repeated": "n = Constant<value_ints = [3, 2]>() y = Tile(x, n)",
    "spread": _SLICE.format(0, 1, 0, 1).replace("y =", "z =") + " s = Shape(x) y = Expand(z, s)",
}


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("op", _BODIES)
@pytest.mark.parametrize("dtype", _TYPES)
def test_moved_as_they_are(dtype: str, op: str, simd: str) -> None:
    model = dvm_graph.optimize(
        _model(dtype, "T[r, c] x, int64[n] at", _BODIES[op]), simd=simd, cores=2
    )
    for rows in _ROWS:
        at = np.random.default_rng(rows).integers(0, rows, 9)
        for columns in _COLUMNS:
            x = _numbers(_TYPES[dtype], rows, columns)
            (got,), want = model.run({"x": x, "at": at}), _moved(op, x, at)
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_array_equal(got.view(np.uint16), np.array(want).view(np.uint16))


@pytest.mark.parametrize(
    "op", ["copy", "rows", "beside", "without the first two", "the last first"]
)
@pytest.mark.parametrize("dtype", _TYPES)
def test_by_pairs(dtype: str, op: str) -> None:
    """Rows of an odd number of elements are none, unless they are one row."""
    model = dvm_graph.optimize(_model(dtype, "T[r, c] x, int64[n] at", _BODIES[op]))
    for columns in (256, 255):
        feeds = {"x": _numbers(_TYPES[dtype], 5, columns), "at": np.array([3, 1])}
        assert ("_i32 " in model.disassemble(feeds)) == (columns == 256)


@pytest.mark.parametrize("op", ["turned", "every second", "the last first in rows", "points"])
@pytest.mark.parametrize("dtype", _TYPES)
def test_as_they_are_stored(dtype: str, op: str) -> None:
    """What rows do not hold side by side is no pair, and is widened as little."""
    model = dvm_graph.optimize(_model(dtype, "T[r, c] x, int64[n] at", _BODIES[op]))
    feeds = {"x": _numbers(_TYPES[dtype], 40, 90), "at": np.array([3, 1])}
    listing = model.disassemble(feeds)
    assert "_stored_f16 " in listing
    assert not any(f"_{name} " in listing for name in ("f32", "bf16", "i16", "u16"))
