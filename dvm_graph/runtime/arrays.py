"""Arrays of what callers feed, whatever it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dvm_graph.errors import InputError


def as_array(name: str, feed: ArrayLike, dtype: Any = None, order: Any = None) -> NDArray[Any]:
    """The feed as an array, itself where it is one of that dtype and order.

    Raises:
        InputError: it does not make one.
    """
    try:
        return np.asarray(feed, dtype, order)
    except Exception as error:  # whatever the code of a foreign class raises
        raise InputError(f"input {name} does not make an array: {error}") from error
