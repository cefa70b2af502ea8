"""Arrays from and to files: feeds from .npz, results to .npz."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.errors import InputError

Arrays = dict[str, NDArray[Any]]


def load_arrays(path: Path) -> Arrays:
    """All arrays of a .npz file, by name; pickled objects are refused.

    Raises:
        InputError: not a .npz file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InputError(
                    f"{path} holds one array; feeds are a .npz file, an array per input"
                )
            return {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path} is no .npz file of plain arrays: {error}") from error


def save_arrays(path: Path, results: Mapping[str, Any]) -> None:
    """Writes arrays under their names, strings as text.

    Raises:
        InputError: a result is no array.
    """
    for name, array in results.items():
        if not isinstance(array, np.ndarray):
            raise InputError(f"output {name!r} is no array, which is what .npz files hold")
    with zipfile.ZipFile(path, "w") as file:  # np.savez reserves some names for its parameters
        for name, array in results.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                is_text = array.dtype.kind == "O"
                np.lib.format.write_array(entry, array.astype(str) if is_text else array)


def describe_result(name: str, array: Any) -> dict[str, Any]:
    """Name, dtype, shape and, for numbers, the range and mean of the finite elements; of a sequence, and of what else is no
    array, what it is, and how long.
    """
    if not isinstance(array, np.ndarray):
        extents = [len(array)] if isinstance(array, list | dict) else []
        return {"name": name, "dtype": type(array).__name__, "shape": extents}
    facts: dict[str, Any] = {
        "name": name,
        "dtype": array.dtype.name,
        "shape": list(array.shape),
    }
    if array.dtype.kind not in "OSU" and array.size:
        numbers = array.astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        facts["finite"] = bool(finite.size == numbers.size)
        if finite.size:
            facts |= {"min": float(finite.min()), "max": float(finite.max())}
            facts["mean"] = float(finite.mean())
    return facts
