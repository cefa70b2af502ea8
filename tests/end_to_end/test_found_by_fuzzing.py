"""Small models that random graphs once broke, kept so that they stay right."""

from __future__ import annotations

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.reference import assert_same_bits, model_from_text


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("rows", [1000, 1 << 18, (1 << 20) + 1])
def test_a_copy_to_scattered_places_fits_local_memory(dtype: str, rows: int) -> None:
    """The tiles of a kernel that only loads and stores were taken to need no local memory."""
    text = f"pairs ({dtype}[n, 1] x) => ({dtype}[n, 2] y) {{ y = Concat<axis = 1>(x, x) }}"
    x = (np.arange(rows) % 100).reshape(rows, 1).astype(dtype)
    (y,) = dvm_graph.optimize(model_from_text(text)).run({"x": x})
    assert_same_bits([y], [np.concatenate([x, x], axis=1)])
