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
from tests.runtime.children import in_child

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
    with pytest.raises(ContradictionError):
        model.run({"x": normal(3), "y": normal(5)})
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


@pytest.mark.parametrize("asked", ["", "<onesided = 1>"])
def test_spectra_of_lengths_that_a_run_is_fed(asked: str) -> None:
    """onnx's inference takes the signal's length for that of its spectrum."""
    text = (
        f"g (float[b, n, 1] x, int64 k) => (float[b, m, 2] y) {{ d = DFT{asked}(x, k) y = Neg(d) }}"
    )
    model, reference = dvm_graph.optimize(parse(text)), session(parse(text))
    for n, k in ((4, 6), (4, 3), (5, 5)):
        assert_runs(model, reference, x=normal(2, n, 1), k=np.array(k))


@pytest.mark.parametrize("asked", ["", "<onesided = 0>", "<onesided = 1>"])
def test_spectra_of_frames_of_unknown_parts(asked: str) -> None:
    """onnx's inference takes whole spectra for the default."""
    text = f"""g (float[b, n, p] x) => (float[b, f, m, 2] y) {{
      step = Constant<value = int64 {{2}}>()
      length = Constant<value = int64 {{5}}>()
      t = STFT{asked}(x, step, , length)
      y = Neg(t)
    }}"""
    model, reference = dvm_graph.optimize(parse(text)), session(parse(text))
    for n in (5, 12):
        assert_runs(model, reference, x=normal(2, n, 1))


def test_what_does_not_compile_so_is_told_as_a_contradiction() -> None:
    text = """g (float[n] x, float[n] y) => (float[k] v) {
      s = Shape(x)
      t = Shape(y)
      zero = Constant<value_ints = [0]>()
      equal = Equal(s, t)
      q = Squeeze(equal, zero)
      v = If (q) < then_branch = p () => (float[i] a) { a = Add(x, y) },
                   else_branch = o () => (float[] b) { d = Concat<axis = 0>(x, y) e = RandomUniformLike(d) b = Floor(e) } >
    }"""
    proto = parse(text)
    model = dvm_graph.optimize(proto, strict=True)  # x and y are of one length: nothing is drawn
    for _ in range(2):
        with pytest.raises(ContradictionError, match="n is 3 by x and 5 by y"):
            model.run({"x": normal(3), "y": normal(5)})
    assert_runs(dvm_graph.optimize(proto), session(proto), x=normal(3), y=normal(5))


def test_what_is_told_of_a_run_is_of_the_program_that_ran() -> None:
    model = dvm_graph.optimize(parse(APART))
    feeds = {"x": normal(3), "y": normal(5)}
    model.run(feeds)
    assert model.statistics.kernels_launched == 2 and model.statistics.run_ns > 0
    assert len(model.profile(feeds, repeats=1).kernels) == 2
    assert "v_tanh" in model.disassemble(feeds)


def test_a_run_within_the_one_that_compiles() -> None:
    """A signal handler's, say: it waits for nobody."""
    inside = """
        import signal
        from tests.end_to_end.test_contradictions import *
        model = dvm_graph.optimize(parse(APART))
        feeds = {"x": normal(3), "y": normal(5)}
        ran = []
        def handle(*_):
            ran.append([y.shape for y in model.run(feeds)])
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.02)
        for _ in range(5):
            assert [y.shape for y in model.run(feeds)] == [(3,), (5,)]
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert all(shapes == [(3,), (5,)] for shapes in ran)
    """
    in_child(inside)


@pytest.mark.parametrize(
    "body",
    [
        'y = RegexFullMatch<pattern = "a.*">(s)',
        'm = RegexFullMatch<pattern = "a.*">(s) y = Not(m)',
        'm = StringNormalizer(s) y = RegexFullMatch<pattern = "a.*">(m)',
    ],
)
def test_names_of_text_that_only_its_readers_tell(body: str) -> None:
    proto = parse(f"g (string[n] s, float[n] x) => (bool[k] y, float[l] z) {{ {body} z = Exp(x) }}")
    text = np.array(["a", "b", "ab", "c"], object)
    model, reference = dvm_graph.optimize(proto), session(proto)
    for n, m in ((4, 4), (2, 3), (4, 0)):
        feeds = {"s": text[:n], "x": normal(m)}
        for got, want in zip(model.run(feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)


def test_axes_of_one_text_that_have_one_name() -> None:
    proto = parse(
        'g (string[n, n] s) => (bool[k, l] y) { m = RegexFullMatch<pattern = "a.*">(s) y = Not(m) }'
    )
    text = np.array([["a", "b", "ab"], ["c", "", "a"]], object)
    (y,) = dvm_graph.optimize(proto).run({"s": text})
    np.testing.assert_array_equal(y, session(proto).run(None, {"s": text})[0])


def test_text_of_another_shape_is_told_by_its_own_name() -> None:
    """Not by that of what reads it."""
    compiled = dvm_graph.optimize(
        parse(
            "g (string[2, k] x, int64[l] i) => (string[l, k] y) { z = Gather(x, i) y = Identity(z) }"
        )
    )
    i = np.array([1, 0])
    (y,) = compiled.run({"x": np.array([["a"], ["b"]]), "i": i})
    assert y.tolist() == [["b"], ["a"]]
    with pytest.raises(dvm_graph.InputError, match=r"^input x has rank 1 \(shape \[2\]\)"):
        compiled.run({"x": np.array(["a", "b"]), "i": i})
    with pytest.raises(ContradictionError, match=r"^x \(axis 0\) has extent 3, expected 2"):
        compiled.run({"x": np.array([["a"], ["b"], ["c"]]), "i": i})


def test_rows_of_text_that_are_of_unlike_lengths() -> None:
    """They are elements of a list, as for onnxruntime; numpy gives them no shape."""
    ragged = [["a"], ["b", "c"]]
    compiled = dvm_graph.optimize(parse("g (string[3] s) => (string[3] y) { y = Identity(s) }"))
    with pytest.raises(ContradictionError, match=r"^s \(axis 0\) has extent 2, expected 3"):
        compiled.run({"s": ragged})
    scalar = parse("g (string s) => (string y) { y = Identity(s) }")
    (y,) = dvm_graph.optimize(scalar).run({"s": ragged})
    np.testing.assert_array_equal(y, session(scalar).run(None, {"s": ragged})[0])
