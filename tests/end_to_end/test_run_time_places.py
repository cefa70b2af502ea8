"""Kernels that load or store rows at places that dims tell: they are compiled for their own extents, wherever that is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.end_to_end.test_control_flow import agrees, normal, parse

SIZES = (1, 2, 7, 300, 5)


def compiled(text: str, *runs: dict[str, Any]) -> list[int]:
    """How many kernels each run compiled, after the others have run."""
    model = agrees(parse(text), *runs)
    counts = []
    for run in runs:
        model.run(run)
        counts.append(model.statistics.kernels_compiled)
    return counts


def test_rows_of_a_run_time_place_are_no_new_kernels() -> None:
    """What is stored at places that dims tell, and read there: the extents of the rows are the same."""
    text = """g (float[n, 4] x, float[2, 4] u) => (float[m, 4] y, float[1, 4] z) {
      e = Exp(u)
      s = Tanh(x)
      y = Concat<axis = 0>(s, e)
      last = Constant<value_ints = [-1]>() most = Constant<value_ints = [1000]>()
      row = Slice(x, last, most)
      z = Neg(row)
    }"""
    runs = [{"x": normal(n, 4), "u": normal(2, 4)} for n in SIZES]
    assert set(compiled(text, *runs)[1:]) == {1}  # Tanh


def test_parts_of_several_rows() -> None:
    """Rows that lie apart, at a place in each, begin there, too; how far apart they lie is for the program."""
    text = """g (float[2, n] x, float[2, 3] u) => (float[2, m] y, float[2, 3] z) {
      e = Exp(u)
      y = Concat<axis = 1>(x, e)
      three = Constant<value_ints = [-3]>() most = Constant<value_ints = [1000]>() one = Constant<value_ints = [1]>()
      row = Slice(x, three, most, one)
      z = Neg(row)
    }"""
    runs = [{"x": normal(2, n + 2), "u": normal(2, 3)} for n in SIZES]
    assert min(compiled(text, *runs)[1:]) > 1


def test_rows_backwards_and_parts_of_halves() -> None:
    text = """g (float[n, 4] x, float16[n] h, float16[3] u) => (float[n, 4] y, float16[m] z, float16[1] last) {
      end = Constant<value_ints = [-1]>() most = Constant<value_ints = [-1000]>() zero = Constant<value_ints = [0]>()
      back = Slice(x, end, most, zero, end)
      y = Tanh(back)
      v = Neg(u)
      z = Concat<axis = 0>(h, v)
      far = Constant<value_ints = [1000]>()
      last = Slice(h, end, far)
    }"""
    halves = {"u": normal(3).astype(np.float16)}
    agrees(
        parse(text),
        *({"x": normal(n, 4), "h": normal(n).astype(np.float16), **halves} for n in SIZES),
    )
