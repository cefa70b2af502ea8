"""Windows that tell apart what conditions of convolutions and pools hold apart, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.end_to_end.reference import assert_agrees

POOLS: dict[str, tuple[str, tuple[int, ...], int]] = {
    "a last window that ends where the image does, a first one before it": (
        "y, i = MaxPool <kernel_shape = [2], strides = [3], pads = [1, 0]> (x)",
        (1, 2, 5),
        21,
    ),
    "a last window behind the image": (
        "y, i = MaxPool <kernel_shape = [3], strides = [2], ceil_mode = 1> (x)",
        (1, 2, 6),
        21,
    ),
    "places by columns": (
        "y, i = MaxPool <kernel_shape = [2, 2], storage_order = 1> (x)",
        (1, 2, 3, 4),
        21,
    ),
    "many taps": (
        "y, i = MaxPool <kernel_shape = [4, 4], pads = [1, 2, 3, 0]> (x)",
        (1, 2, 5, 4),
        21,
    ),
    "a window larger than the image": (
        "y = AveragePool <kernel_shape = [3], strides = [2], count_include_pad = 1> (x)",
        (1, 2, 2),
        18,
    ),
    "a window larger than the image, of which the image counts": (
        "y = AveragePool <kernel_shape = [3], strides = [2], count_include_pad = 1> (x)",
        (1, 2, 2),
        19,
    ),
    "a last window behind the padded image": (
        "y = AveragePool <kernel_shape = [3], strides = [3], pads = [1, 1], ceil_mode = 1, count_include_pad = 1> (x)",
        (1, 2, 5),
        18,
    ),
    "a last window behind the image, without pads": (
        "y = AveragePool <kernel_shape = [3], strides = [2], ceil_mode = 1> (x)",
        (1, 2, 6),
        21,
    ),
    "pads that do not count": (
        "y = AveragePool <kernel_shape = [3], pads = [1, 0]> (x)",
        (1, 2, 6),
        21,
    ),
    "pads that count": (
        "y = AveragePool <kernel_shape = [3], pads = [1, 1], count_include_pad = 1> (x)",
        (1, 2, 6),
        21,
    ),
    "pads behind that do not count": (
        "y = AveragePool <kernel_shape = [3, 2], pads = [0, 0, 1, 1]> (x)",
        (1, 2, 4, 5),
        21,
    ),
    "taps apart, of which some count": (
        "y = AveragePool <kernel_shape = [3], dilations = [2], pads = [2, 2]> (x)",
        (1, 2, 5),
        21,
    ),
    "same, more of it in front": (
        'y = MaxPool <kernel_shape = [3, 2], strides = [2, 1], auto_pad = "SAME_LOWER"> (x)',
        (1, 2, 4, 4),
        21,
    ),
    "half of a norm": ("y = LpPool <kernel_shape = [2], p = 1, pads = [1, 0]> (x)", (1, 2, 5), 21),
    "a norm of other powers": ("y = LpPool <kernel_shape = [2], p = 3> (x)", (1, 2, 5), 21),
}
"""Operators, images, opsets."""


@pytest.mark.parametrize("name", POOLS)
def test_pools(name: str) -> None:
    operator, image, opset = POOLS[name]
    names = "abcde"[: len(image)]
    shape = ", ".join(names)
    index = f", int64[{', '.join(f'{n}i' for n in names)}] i" if "i = Max" in operator else ""
    text = f"""g (float[{shape}] x) => (float[{", ".join(f"{n}y" for n in names)}] y{index}) {{ {operator} }}"""
    assert_agrees(text, {"x": image}, opset=opset, strict=True)


BORDERED: dict[str, str] = {
    "on all sides": "p = Pad (x, sides)",
    "of ones": "p = Pad (x, sides, one)",
    "around the batch": "p = Pad (x, batches)",
    "around channels": "p = Pad (x, channels)",
    "between": "s = Expand (nought, extents) p = Concat <axis = 3> (x, s, x)",
    "before all else": "s = Expand (nought, extents) p = Concat <axis = 3> (s, s, x)",
    "behind all else": "s = Expand (nought, extents) p = Concat <axis = 2> (x, s)",
    "of borders": "q = Pad (x, sides) p = Pad (q, sides)",
    "of borders of ones": "q = Pad (x, sides, one) p = Pad (q, sides)",
    "that is cut": "p = Pad (x, cut)",
}
"""What lies around an image [n, 2, 4, 4]."""
MOVES = {
    "plain": "",
    "padded": "pads = [1, 0, 2, 1]",
    "with steps": "strides = [2, 3]",
    "same": 'auto_pad = "SAME_UPPER", strides = [2, 2]',
    "same, more of it in front": 'auto_pad = "SAME_LOWER", strides = [2, 2]',
    "valid": 'auto_pad = "VALID"',
}


@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("name", BORDERED)
def test_borders_of_zeros_are_pads(name: str, moves: str) -> None:
    count = 4 if name == "around channels" else 2
    text = f"""g (float[n, 2, 4, 4] x) => (float[a, b, c, d] y)
    <int64[8] sides = {{0, 0, 1, 2, 0, 0, 0, 1}}, int64[8] batches = {{1, 0, 0, 0, 1, 0, 0, 0}},
     int64[8] channels = {{0, 1, 0, 0, 0, 1, 0, 0}}, int64[8] cut = {{0, 0, 1, -1, 0, 0, 0, 1}},
     int64[4] extents = {{1, 2, 4, 4}}, float nought = {{0.0}}, float one = {{1.0}}> {{
        {BORDERED[name]}
        y = Conv <{MOVES[moves]}> (p, w)
    }}""".replace("Conv <>", "Conv")
    weights = np.random.default_rng(0).standard_normal((3, count, 3, 3), np.float32)
    assert_agrees(text, {"x": (1, 2, 4, 4)}, constants={"w": weights}, strict=True)


def test_weights_that_are_not_finite_meet_zeros_around_an_image() -> None:
    text = """g (float[n, 1, 4, 4] x) => (float[a, b, c, d] y) <int64[8] sides = {0, 0, 1, 1, 0, 0, 1, 1}> {
        p = Pad (x, sides)
        y = Conv (p, w)
    }"""
    weights = np.ones((1, 1, 3, 3), np.float32)
    weights[0, 0, 0, 0] = np.inf
    x = np.abs(np.random.default_rng(0).standard_normal((1, 1, 4, 4), np.float32))
    assert_agrees(text, {"x": x}, constants={"w": weights}, strict=True)


CONVOLUTIONS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "of single elements": ("", (1, 4, 5, 5), (6, 4, 1, 1)),
    "of single elements, every other": ("strides = [2, 2]", (1, 4, 5, 5), (6, 4, 1, 1)),
    "of single elements, with pads": ("pads = [1, 0, 0, 1]", (1, 4, 5, 5), (6, 4, 1, 1)),
    "of single elements of a row, every other": ("strides = [2]", (1, 4, 5), (6, 4, 1)),
    "of groups of single elements": ("group = 2", (1, 4, 5, 5), (6, 2, 1, 1)),
    "of channels apart": ("group = 4, pads = [1, 1, 1, 1]", (1, 4, 5, 5), (4, 1, 3, 3)),
    "of channels apart, two results of each": ("group = 4", (1, 4, 5, 5), (8, 1, 3, 3)),
    "of pairs of channels": ("group = 2", (1, 4, 5, 5), (4, 2, 3, 3)),
    "of pairs of channels, three results of each": ("group = 2", (1, 4, 5, 5), (6, 2, 3, 3)),
    "of groups with more channels than results": ("group = 2", (1, 8, 5, 5), (4, 4, 3, 3)),
    "of one channel, to one": ("", (1, 1, 5, 5), (1, 1, 3, 3)),
    "of one channel, to three": ("", (1, 1, 5, 5), (3, 1, 3, 3)),
    "of many results of a channel": ("group = 2", (1, 2, 5, 5), (34, 1, 3, 3)),
    "of slices": ("group = 2", (1, 2, 3, 4, 4), (2, 1, 1, 3, 3)),
    "of every other slice": ("group = 2, strides = [2, 1, 1]", (1, 2, 5, 4, 4), (2, 1, 1, 3, 3)),
    "of slices, and of zeros around": (
        "group = 2, pads = [1, 0, 0, 0, 0, 0]",
        (1, 2, 3, 4, 4),
        (2, 1, 1, 3, 3),
    ),
    "of volumes": ("group = 2, dilations = [2, 1, 1]", (1, 2, 5, 4, 4), (2, 1, 2, 3, 3)),
    "of volumes, many results": ("group = 2", (1, 2, 3, 4, 4), (20, 1, 2, 3, 3)),
    "of volumes, all channels": ("", (1, 2, 3, 4, 4), (3, 2, 2, 3, 3)),
}
"""Attributes, image, weights."""


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, constant: bool) -> None:
    attributes, image, weights = CONVOLUTIONS[name]
    names = "abcde"[: len(image)]
    _, channels, *_ = image
    own = ", ".join((names[0], str(channels), *names[2:]))
    result = ", ".join(f"{n}y" for n in names)
    extents = ", ".join(map(str, weights))
    given = "" if constant else f", float[{extents}] w"
    text = (
        f"""g (float[{own}] x{given}) => (float[{result}] y) {{ y = Conv <{attributes}> (x, w) }}"""
    )
    kernel = np.random.default_rng(1).standard_normal(weights, np.float32)
    feeds: dict[str, Any] = {"x": image} if constant else {"x": image, "w": kernel}
    constants = {"w": kernel} if constant else None
    assert_agrees(text.replace("Conv <>", "Conv"), feeds, constants=constants, strict=True)
