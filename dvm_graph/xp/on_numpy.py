"""Functions of the standard as numpy has them: its own of the same name, but where it gives complex numbers that the
standard does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def expm1(x: Any, /) -> NDArray[Any]:
    """Of infinities and NaN what the exponential says of them; the real part of a result is no negative zero."""
    result: NDArray[Any] = np.asarray(np.expm1(x))
    if result.dtype.kind != "c":
        return result
    found = np.where(np.isfinite(x), result, np.exp(x) - 1)
    found.real += 0.0
    return found


def tanh(x: Any, /) -> NDArray[Any]:
    """At an infinite real part the zero beside 1 or -1 has the sign of the other part."""
    result: NDArray[Any] = np.asarray(np.tanh(x))
    if result.dtype.kind != "c":
        return result
    found: NDArray[Any] = result.copy()
    limit = np.isinf(np.real(x)) & np.isfinite(np.imag(x))
    found.imag = np.where(limit, np.copysign(0.0, np.imag(x)), result.imag)
    return found


_OWN = {function.__name__: function for function in (expm1, tanh)}


def function_of(name: str) -> Callable[..., Any]:
    """The function of a name."""
    found: Callable[..., Any] = _OWN.get(name) or getattr(np, name)
    return found
