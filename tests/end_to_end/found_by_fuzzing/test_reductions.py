"""Small models that random graphs once broke: reductions and operators that look for an element along an axis."""

from __future__ import annotations

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.reference import (
    assert_all_close,
    model_from_text,
    session,
)


@pytest.mark.parametrize("perm", [(0, 2, 1, 3), (0, 3, 1, 2), (2, 3, 1, 0)])
@pytest.mark.parametrize("shape", [(2, 3, 12, 8), (1, 3, 2, 64), (4, 3, 17, 70)])
def test_a_reduction_over_a_transposed_image(perm: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """An operation that was unrolled took its own parts for a reader to repeat itself for, without end."""
    model = model_from_text(
        f"""image (float[n, 3, h, w] x) => (float[a, b, c, d] y) <int64[3] axes = {{1, 2, 3}}> {{
            t = Transpose<perm = [{", ".join(map(str, perm))}]>(x)
            y = ReduceLogSumExp(t, axes)
        }}"""
    )
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    assert_all_close([y], session(model).run(None, {"x": x}), x.size)


@pytest.mark.parametrize("dims", ["a, b, c", "?, ?, ?", None])
@pytest.mark.parametrize(("shape", "axis"), [((0, 0, 7), 0), ((0, 0, 7), 1), ((0, 3, 0), 2)])
def test_the_place_of_the_least_along_an_axis_of_0_has_extent_1(
    dims: str | None, shape: tuple[int, ...], axis: int
) -> None:
    """The axis took the extent of the slice that says whether its first element is NaN: 0."""
    dims = dims or ", ".join(map(str, shape))
    x = np.zeros(shape, np.float32)
    model = model_from_text(
        f"least (float[{dims}] x) => (int64[?, ?, ?] y) {{ y = ArgMin<axis = {axis}>(x) }}"
    )
    (y,) = dvm_graph.optimize(model).run({"x": x})
    assert y.shape == tuple(1 if at == axis else extent for at, extent in enumerate(shape))


@pytest.mark.parametrize("fallbacks", ["if_needed", "always"])
@pytest.mark.parametrize("dims", ["a, b", "3, 0"])
def test_hardmax_over_nothing(dims: str, fallbacks: str) -> None:
    model = model_from_text(f"hard (float[{dims}] x) => (float[{dims}] y) {{ y = Hardmax(x) }}")
    compiled = dvm_graph.optimize(model, fallbacks=fallbacks)
    (y,) = compiled.run({"x": np.zeros((3, 0), np.float32)})
    assert y.shape == (3, 0)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceL2", "ReduceMean"])
@pytest.mark.parametrize("repeats", ["3, 3, 1, 3", "7, 1, 1, 1", "5, 2, 3, 1"])
def test_pieces_of_a_reduction_that_read_the_same(repeats: str, op: str, cores: int) -> None:
    """Each piece has a result to store, though what repeats along the axis was computed once for all of a core."""
    model = model_from_text(
        f"""g (float[1, a, n, 4] x) => (float[?, ?, ?, ?] y)
        <int64[4] repeats = {{{repeats}}}> {{ z = Tile(x, repeats) y = {op}(z) }}"""
    )
    mine, generator = dvm_graph.optimize(model, cores=cores), np.random.default_rng(0)
    count = np.prod([int(repeat) for repeat in repeats.split(",")])
    for n in (1, 1000, 2500, 4093, 30000):
        x = generator.random((1, 1, n, 4), np.float32)
        wide = x.astype(np.float64)
        expected = {
            "ReduceSum": count * wide.sum(),
            "ReduceMax": wide.max(),
            "ReduceL2": np.sqrt(count * np.square(wide).sum()),
            "ReduceMean": wide.mean(),
        }[op]
        np.testing.assert_allclose(mine.run({"x": x})[0].item(), expected, 1e-4)


def test_batches_of_indices_that_are_not_those_of_the_data() -> None:
    """What lay at the coordinates was read, or what lay behind the data."""
    model = model_from_text(
        """g (float[b, n] x, int64[c, m, 1] at) => (float[c, m] y) {
            y = GatherND<batch_dims = 1>(x, at)
        }"""
    )
    mine, x = dvm_graph.optimize(model), np.arange(6, dtype=np.float32).reshape(2, 3)
    at = np.array([[[2], [0]], [[1], [1]]])
    np.testing.assert_array_equal(mine.run({"x": x, "at": at})[0], [[2, 0], [4, 4]])
    for batches in (1, 3):
        with pytest.raises(dvm_graph.ShapeError, match="batches"):
            mine.run({"x": x, "at": np.zeros((batches, 2, 1), np.int64)})
    np.testing.assert_array_equal(mine.run({"x": x, "at": at})[0], [[2, 0], [4, 4]])
