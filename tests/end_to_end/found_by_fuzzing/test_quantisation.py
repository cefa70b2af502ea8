"""Small models that random graphs once broke: scales, zero points and ends of integer types."""

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


@pytest.mark.parametrize("elements", [[], [0, 0], [-1, 2.5, 3], [4, 5], [-4, -5], [1e-30, 0]])
def test_quantisation_by_a_range_of_nothing(elements: list[float]) -> None:
    """The function of the standard divides by the range, which is 0."""
    model = model_from_text(
        """quantise (float[n] x) => (uint8[n] y, float scale, uint8 zero)
        { y, scale, zero = DynamicQuantizeLinear(x) }"""
    )
    x = np.array(elements, np.float32)
    assert_all_close(dvm_graph.optimize(model).run({"x": x}), session(model).run(None, {"x": x}))


@pytest.mark.parametrize("op", ["DequantizeLinear", "QuantizeLinear"])
@pytest.mark.parametrize(("rank", "length"), [(1, 1), (2, 1), (2, 3)])
def test_scales_of_unknown_length_are_for_the_tensor_or_for_an_axis(
    op: str, rank: int, length: int
) -> None:
    """One in a vector was taken for that of an axis, which there need not be."""
    kind, result = ("int8", "float") if op == "DequantizeLinear" else ("float", "uint8")
    dims = ", ".join("nm"[:rank])
    model = model_from_text(
        f"g ({kind}[{dims}] x, float[k] s) => ({result}[{dims}] y) {{ y = {op}(x, s) }}"
    )
    x = np.arange(6).reshape((2, 3)[-rank:] if rank == 2 else (6,))
    feeds = {
        "x": x.astype(np.int8 if op == "DequantizeLinear" else np.float32),
        "s": np.array([0.5, 0.25, 2.0], np.float32)[:length],
    }
    expected = session(model).run(None, feeds)
    assert_same_bits(dvm_graph.optimize(model).run(feeds), expected)


def test_one_scale_in_a_vector_has_no_axis() -> None:
    model = model_from_text(
        """g (float[1] s, int8[n] x) => (float[n] y) { y = DequantizeLinear(x, s) }""", opset=13
    )
    feeds = {"s": np.array([-3], np.float32), "x": np.array([2, -5], np.int8)}
    (y,) = dvm_graph.optimize(model).run(feeds)
    np.testing.assert_array_equal(y, np.array([-6, 15], np.float32))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("read_back", [False, True])
def test_what_no_integer_stands_for_is_quantised_to_an_end_of_the_type(
    dtype: str, read_back: bool
) -> None:
    """A NaN became an integer that the type does not hold, which a dequantisation in the same kernel read."""
    point = int(np.iinfo(dtype).max) - 3
    model = model_from_text(
        f"""g (float[n] x) => ({"float" if read_back else dtype}[n] y) <float s = {{2.25}}, {dtype} o = {{{point}}}> {{
            q = QuantizeLinear(x, s, o)
            y = {"DequantizeLinear(q, s, o)" if read_back else "Identity(q)"}
        }}""",
        opset=21,
    )
    numbers = [np.nan, np.inf, -np.inf, 1e38, -1e38, 3e9, -3e9, 5e9, -5e9, 1e-40, -0.0, 2.0]
    feeds = {"x": np.array(numbers, np.float32)}
    assert_same_bits(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))
