"""Constants that only vendor operators look at, as what JSON can hold: text, and elements that kernels lack."""

from __future__ import annotations

import base64
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dvm_graph.errors import UnsupportedError


def object_to_plain(name: str, contents: Any) -> dict[str, Any]:
    """Raises UnsupportedError: it is neither numbers nor text."""
    if not isinstance(contents, np.ndarray):
        raise UnsupportedError(f"constant {name!r} is a {type(contents).__name__}: not saved")
    shape = list(contents.shape)
    if contents.dtype.kind != "O":
        data = base64.b64encode(contents.tobytes()).decode()
        return {"dtype": contents.dtype.name, "shape": shape, "data": data}
    texts = contents.reshape(-1).tolist()
    if not all(isinstance(text, str) for text in texts):
        raise UnsupportedError(f"constant {name!r} has elements that are no text: not saved")
    return {"shape": shape, "texts": texts}


def object_from_plain(data: dict[str, Any]) -> NDArray[Any]:
    if "texts" in data:
        texts = np.empty(len(data["texts"]), object)
        texts[:] = data["texts"]
        shaped: NDArray[Any] = texts.reshape(data["shape"])
        return shaped
    name = data["dtype"]
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    flat: NDArray[Any] = np.frombuffer(base64.b64decode(data["data"]), dtype)
    shaped = flat.reshape(data["shape"])
    return shaped
