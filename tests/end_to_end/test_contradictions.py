"""Runs whose inputs contradict the names of their dims, which say nothing to onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dvm_graph
from dvm_graph.errors import ContradictionError
from tests.decompose.reference import session
from tests.end_to_end.test_control_flow import normal, parse

APART = "g (float[n] x, float[n] y) => (float[k] u, float[l] v) { u = Exp(x) v = Tanh(y) }"
TOGETHER = "g (float[n] x, float[n] y) => (float[k] u) { u = Add(x, y) }"
CACHE = """g (float[b, t] ids, float[b, "past + 1"] mask, float[b, past, 4] past_keys) => (float[b, t] u, float[b, s] v, float[b, p, 4] w) {
  u = Exp(ids)
  v = Neg(mask)
  w = Tanh(past_keys)
}"""


def assert_runs(model: dvm_graph.Model, reference: Any, **feeds: np.ndarray[Any, Any]) -> None:
    for got, want in zip(model.run(feeds), reference.run(None, feeds), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_dims_that_no_operator_needs_equal() -> None:
    proto = parse(APART)
    model, reference = dvm_graph.optimize(proto), session(proto)
    for n, m in ((3, 3), (3, 5), (0, 2), (4, 4), (5, 3)):
        assert_runs(model, reference, x=normal(n), y=normal(m))


def test_a_prompt_of_a_decoder_whose_mask_is_named_for_single_tokens() -> None:
    proto = parse(CACHE.replace('"past + 1"', "p1"))
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "past + 1"
    model, reference = dvm_graph.optimize(proto), session(proto)
    for tokens, mask, past in ((1, 5, 4), (6, 6, 0), (1, 7, 6), (3, 2, 0)):
        feeds = {"ids": normal(2, tokens), "mask": normal(2, mask), "past_keys": normal(2, past, 4)}
        assert_runs(model, reference, **feeds)


def test_dims_that_an_operator_needs_equal(tmp_path: Path) -> None:
    model = dvm_graph.optimize(parse(TOGETHER))
    for _ in range(2):
        with pytest.raises(ContradictionError, match="n is 3 by x and 5 by y"):
            model.run({"x": normal(3), "y": normal(5)})
        (u,) = model.run({"x": normal(3), "y": normal(3)})
        np.testing.assert_allclose(u, normal(3) + normal(3))
    (u,) = model.run({"x": normal(1), "y": normal(5)})  # which broadcast
    np.testing.assert_allclose(u, normal(1) + normal(5))


def test_a_saved_model_has_nothing_to_compile(tmp_path: Path) -> None:
    dvm_graph.optimize(parse(APART)).save(tmp_path / "names.dvm")
    dvm_graph.optimize(parse(APART), dims_by_name=False).save(tmp_path / "apart.dvm")
    names, apart = (dvm_graph.load(tmp_path / f"{name}.dvm") for name in ("names", "apart"))
    with pytest.raises(ContradictionError, match="n is 3 by x and 5 by y"):
        names.run({"x": normal(3), "y": normal(5)})
    assert_runs(apart, session(parse(APART)), x=normal(3), y=normal(5))


def test_with_hints_of_dims() -> None:
    model = dvm_graph.optimize(parse(APART), dim_hints={"n": (1, 4)})
    assert_runs(model, session(parse(APART)), x=normal(3), y=normal(2))
    with pytest.raises(dvm_graph.ShapeError, match=r"n is in 1\.\.4"):
        model.run({"x": normal(5), "y": normal(5)})


@pytest.mark.parametrize("onesided", [0, 1])
def test_spectra_of_computed_lengths(onesided: int) -> None:
    """onnx's inference takes half a spectrum for a whole one where the length is no constant."""
    text = f"""g (float[b, n, 1] x) => (float[b, m, 2] y) {{
      s = Shape<start = 1, end = 2>(x)
      zero = Constant<value_ints = [0]>()
      length = Squeeze(s, zero)
      axis = Constant<value = int64 {{1}}>()
      d = DFT<onesided = {onesided}>(x, length, axis)
      y = Neg(d)
    }}"""
    model, reference = dvm_graph.optimize(parse(text)), session(parse(text))
    for n in (10, 7, 1):
        assert_runs(model, reference, x=normal(2, n, 1))
