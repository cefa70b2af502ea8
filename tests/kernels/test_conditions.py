"""Models that tell apart what conditions of lowering hold apart, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.end_to_end.reference import Feeds, assert_agrees

BOUNDED: dict[str, tuple[str, Feeds]] = {
    "integers that wrap to bytes": (
        """g (int32[n] x) => (float[n] y) <int32 most = {100}, uint8 least = {3}> {
            a = Min (x, most)
            b = Cast <to = 2> (a)
            c = Max (b, least)
            d = Cast <to = 3> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 4, 1, 200, -300], np.int32)},
    ),
    "integers that wrap to others as wide as registers": (
        """g (int64[n] x) => (float[n] y) <int64 most = {100}, int32 least = {-3}> {
            a = Min (x, most)
            b = Cast <to = 6> (a)
            c = Max (b, least)
            d = Cast <to = 3> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 4, 1, 200, -(2**31) - 1], np.int64)},
    ),
    "floats that end as bytes": (
        """g (float[n] x) => (float[n] y) <float most = {100.0}, int32 least = {3}> {
            a = Min (x, most)
            b = Cast <to = 6> (a)
            c = Max (b, least)
            d = Cast <to = 2> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 4, 1, 200, -3e9, -np.inf, np.inf, np.nan], np.float32)},
    ),
    "a bound of the one kind only": (
        """g (float[n] x) => (float[n] y) <int32 least = {3}> {
            b = Cast <to = 6> (x)
            c = Max (b, least)
            d = Cast <to = 2> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 4, 1, 200, 300], np.float32)},
    ),
    "bounds of another type": (
        """g (float[n] x) => (float[n] y) <float most = {200.0}, int32 least = {-100}> {
            a = Min (x, most)
            b = Cast <to = 6> (a)
            c = Max (b, least)
            d = Cast <to = 3> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 4, 1, 300, 130, -300], np.float32)},
    ),
    "bounds for each element": (
        """g (float[3] x) => (float[n] y) <float[3] most = {100.0, 300.0, 100.0}, int32 least = {3}> {
            a = Min (x, most)
            b = Cast <to = 6> (a)
            c = Max (b, least)
            d = Cast <to = 2> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 290, 300], np.float32)},
    ),
    "a number that is no bound": (
        """g (float[n] x) => (float[m] y) <float most = {5.0}, int32 least = {3}> {
            a = Add (x, most)
            b = Cast <to = 6> (a)
            c = Max (b, least)
            d = Cast <to = 2> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 290, 300], np.float32)},
    ),
    "bytes of the other sign": (
        """g (int8[n] x, uint8[n] z) => (float[m] y, float[k] w) {
            a = Cast <to = 2> (x)
            b = Cast <to = 3> (z)
            y = Cast <to = 1> (a)
            w = Cast <to = 1> (b)
        }""",
        {"x": np.array([-1, 0, 127], np.int8), "z": np.array([255, 128, 127], np.uint8)},
    ),
    "floats that are rounded on their way": (
        """g (float[n] x) => (float[m] y) {
            a = Cast <to = 10> (x)
            b = Cast <to = 1> (a)
            y = Sub (b, x)
        }""",
        {"x": np.array([0.1, 1000.7, -3.3], np.float32)},
    ),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_spare_wrapping_where_they_hold(name: str) -> None:
    text, feeds = BOUNDED[name]
    assert_agrees(text, feeds)
