"""Bounds, pads and indices at the ends of what there is, known and told by the run, against onnxruntime."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.reference import Array, Feeds, assert_agrees, model_from_text

_INT, _LONG = 2**31 - 1, 2**63 - 1


def integers(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


BOUNDS = [
    *((0, _INT, 1), (0, _LONG, 1), (-2, _LONG, 1), (1, -1, 1), (-9, 9, 1), (4, 1, 1), (2, 2, 1)),
    *((-_LONG - 1, _LONG, 3), (_INT + 1, _INT + 5, 1), (1, _LONG, _LONG), (0, 9, 2), (3, 9, _INT)),
    *((-1, -9, -1), (_LONG, -_LONG - 1, -1), (_INT, -_INT - 1, -1), (4, 0, -2), (-1, _INT, -1)),
    *((-1, _LONG, -1), (-9, -20, -1), (3, -_LONG - 1, -3), (2, -_LONG - 1, -_LONG), (0, -9, -1)),
    *((3, _INT - 1, -1), (-_INT, 2, 1), (-_INT + 1, _INT - 1, 1), (3, 3, -1), (1, -3, -1)),
]
"""Start, end and step of slices."""
_EXTENTS = (5, 4, 1, 0)


def test_bounds_that_are_known() -> None:
    names = [f"y{at}" for at in range(len(BOUNDS))]
    nodes = " ".join(f"{y} = Slice (x, {y}s, {y}e, axes, {y}t)" for y in names)
    outputs = ", ".join(f"float[n{at}, 2] y{at}" for at in range(len(BOUNDS)))
    constants = {"axes": integers(-2)}
    for y, bounds in zip(names, BOUNDS, strict=True):
        constants |= {f"{y}{key}": integers(n) for key, n in zip("set", bounds, strict=True)}
    runs: list[Feeds] = [{"x": (extent, 2)} for extent in _EXTENTS]
    assert_agrees(
        f"g (float[n, 2] x) => ({outputs}) {{ {nodes} }}", *runs, constants=constants, strict=True
    )


@pytest.mark.parametrize("known", ["", "s", "e", "t", "st", "et", "se"])
def test_bounds_that_a_run_tells(known: str) -> None:
    """Those that are `known` are those of the first slices of their kind."""
    runs: list[Feeds] = []
    model = {"s": 1, "e": -1, "t": 1}
    for bounds, extent in itertools.product(BOUNDS, _EXTENTS):
        told = dict(zip("set", bounds, strict=True))
        if all(told[key] == model[key] for key in known):
            runs.append(
                {"x": (extent, 2)} | {k: integers(n) for k, n in told.items() if k not in known}
            )
    given = "".join(f", int64[1] {key}" for key in "set" if key not in known)
    assert runs
    assert_agrees(
        f"g (float[n, 2] x{given}) => (float[m, k] y) {{ y = Slice (x, s, e, axes, t) }}",
        *runs,
        constants={"axes": integers(0), **{key: integers(model[key]) for key in known}},
        strict=True,
    )


@pytest.mark.parametrize("given", ["", ", int64[2] s", ", int64[2] e", ", int64[2] s, int64[2] e"])
@pytest.mark.parametrize("axes", ["", ", axes"])
def test_bounds_of_all_axes(axes: str, given: str) -> None:
    bounds = {"s": integers(1, -2), "e": integers(-1, _LONG)}
    told = {key: bound for key, bound in bounds.items() if f" {key}" in given}
    runs: list[Feeds] = [{"x": shape, **told} for shape in ((5, 4), (1, 1), (0, 3))]
    assert_agrees(
        f"g (float[n, m] x{given}) => (float[k, l] y) {{ y = Slice (x, s, e{axes}) }}",
        *runs,
        constants={
            **{key: bound for key, bound in bounds.items() if key not in told},
            **({"axes": integers(1, 0)} if axes else {}),
        },
        strict=True,
    )


@pytest.mark.parametrize("step", ["", ", st"])
def test_bounds_of_axes_that_a_run_tells(step: str) -> None:
    runs: list[Feeds] = [
        {"x": shape, "a": integers(*axes)}
        for shape, axes in itertools.product([(5, 4), (1, 3), (0, 3)], [(0, 1), (1, 0), (-1, 0)])
    ]
    assert_agrees(
        f"g (float[n, m] x, int64[2] a) => (float[k, l] y) {{ y = Slice (x, s, e, a{step}) }}",
        *runs,
        constants={"s": integers(0, 1), "e": integers(_LONG, -1), "st": integers(1, 2)},
    )


def test_bounds_that_extents_tell() -> None:
    runs: list[Feeds] = [
        {"x": (n, 2), "z": (m,)} for n, m in itertools.product((5, 1, 0), (0, 1, 3, 7))
    ]
    nodes = " ".join(
        f"y{at} = Slice (x, {start}, {end}, first, {step})"
        for at, (start, end, step) in enumerate(
            [
                *(("s", "large", "one"), ("zero", "s", "one"), ("m", "large", "one")),
                *(("zero", "m", "one"), ("s", "small", "minus"), ("m", "small", "minus")),
                *(("large", "s", "minus"), ("large", "m", "minus"), ("m", "s", "two")),
            ]
        )
    )
    outputs = ", ".join(f"float[n{at}, 2] y{at}" for at in range(9))
    assert_agrees(
        f"g (float[n, 2] x, float[m] z) => ({outputs}) {{ s = Shape (z) m = Neg (s) {nodes} }}",
        *runs,
        constants={
            **{"first": integers(0), "zero": integers(0), "one": integers(1), "two": integers(2)},
            **{"minus": integers(-1), "large": integers(_LONG), "small": integers(-_LONG - 1)},
        },
        strict=True,
    )


PADS: dict[str, tuple[list[tuple[int, ...]], list[tuple[int, int]]]] = {
    "constant": (
        [(0, 0, 0, 0), (0, 1, 0, 2), (0, -1, 0, 2), (-1, 0, 2, 0), (0, -4, 0, 5), (0, -1, 0, -2)],
        [(3, 4), (1, 4), (1, 5)],
    ),
    "edge": ([(0, 0, 0, 0), (2, 1, 0, 2), (0, 7, 0, 3), (0, -1, 0, 1), (0, 3, 0, -2)], [(3, 4), (1, 5)]),
    "reflect": ([(0, 0, 0, 0), (0, 3, 0, 3), (0, -1, 0, 1), (0, 1, 0, -1)], [(3, 4), (1, 5)]),
    "wrap": ([(0, 0, 0, 0), (2, 1, 0, 2), (0, -1, 0, 1), (0, 3, 0, 1)], [(3, 4), (1, 5)]),
}  # fmt: skip
"""By mode, pads and shapes that they are for."""


@pytest.mark.parametrize("value", ["", ", v"])
@pytest.mark.parametrize("mode", PADS)
def test_pads(mode: str, value: str) -> None:
    amounts, shapes = PADS[mode]
    names = [f"y{at}" for at in range(len(amounts))]
    nodes = " ".join(f'{y} = Pad <mode = "{mode}"> (x, {y}p{value})' for y in names)
    outputs = ", ".join(f"float[n{at}, m{at}] y{at}" for at in range(len(amounts)))
    constants = {f"{y}p": integers(*pads) for y, pads in zip(names, amounts, strict=True)}
    runs: list[Feeds] = [{"x": shape} for shape in shapes]
    extra = {"v": np.array(-1.5, np.float32)} if value else {}
    text = f"g (float[n, m] x) => ({outputs}) {{ {nodes} }}"
    assert_agrees(text, *runs, constants={**constants, **extra}, strict=True)
    text = f'g (float[n, m] x, int64[4] p) => (float[k, l] y) {{ y = Pad <mode = "{mode}"> (x, p{value}) }}'
    runs = [
        {"x": shape, "p": integers(*pads)} for pads, shape in itertools.product(amounts, shapes)
    ]
    assert_agrees(text, *runs, constants=extra, strict=True)


GATHERED = [
    *("Gather (x, one)", "Gather (x, minus)", "Gather <axis = 1> (x, row)", "Gather (x, twice)"),
    *("Gather (x, back)", "Gather <axis = -1> (x, counted)", "Gather (x, single)"),
    *("GatherElements <axis = 1> (x, elements)", "GatherElements (x, elements)"),
    *("GatherND (x, points)", "GatherND (x, rows)", "GatherND <batch_dims = 1> (x, places)"),
]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("extents", ["n, m", "3, 4"])
def test_places_that_are_gathered(extents: str, given: bool) -> None:
    indices = {
        **{"one": np.array(1), "minus": np.array(-3), "row": integers(0, 3, -1, -4)},
        **{"twice": np.array([[0, 1], [1, 2]]), "back": integers(2, 1, 0), "single": integers(2)},
        **{"counted": integers(1, 2, 3), "elements": np.array([[0, -1], [1, -3]])},
        **{"points": np.array([[0, -1], [2, 3]]), "rows": np.array([[2], [-3]])},
        "places": np.array([[0], [-1], [3]]),
    }
    nodes = " ".join(f"y{at} = {node}" for at, node in enumerate(GATHERED))
    ranks = (1, 1, 2, 3, 2, 2, 2, 2, 2, 1, 2, 1)
    outputs = ", ".join(
        f"float[{', '.join(f'd{at}_{axis}' for axis in range(rank))}] y{at}"
        for at, rank in enumerate(ranks)
    )
    inputs = "".join(
        f", int64{list(index.shape) if index.ndim else ''} {name}"
        for name, index in indices.items()
    )
    text = f"g (float[{extents}] x{inputs if given else ''}) => ({outputs}) {{ {nodes} }}"
    feeds: Feeds = {"x": (3, 4), **(indices if given else {})}
    assert_agrees(text, feeds, constants=None if given else indices, strict=True)


def test_what_is_left_beside_a_dim_of_0() -> None:
    """Where zeros are as they are; onnxruntime multiplies those extents that are none."""
    text = """g (float[n, m] x) => (float[a, b] y) <int64[1] rest = {-1}> {
        n = Shape <start = 0, end = 1> (x) t = Concat <axis = 0> (n, rest)
        y = Reshape <allowzero = 1> (x, t)
    }"""
    assert_agrees(text, *({"x": shape} for shape in ((2, 3), (0, 3), (2, 0))), strict=True)
    model = dvm_graph.optimize(model_from_text(text))
    assert model.run({"x": np.zeros((0, 0), np.float32)})[0].shape == (0, 0)
