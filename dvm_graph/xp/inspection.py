"""What the namespace can do, by the standard's inspection functions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

import dvm_graph.xp as xp
from dvm_graph.errors import InputError
from dvm_graph.xp import dtypes
from dvm_graph.xp.array import DEVICE, Device, DTypeObject, require_device

VERSION = "2024.12"
_OLDER = ("2021.12", "2022.12", "2023.12")


def of_version(version: str | None) -> ModuleType:
    """The namespace, which later versions of the standard only added to."""
    if version not in (None, VERSION, *_OLDER):
        raise InputError(
            f"the namespace is that of version {VERSION} of the standard, not {version}"
        )
    return xp


class Info:
    def capabilities(self) -> dict[str, Any]:
        # kernels loop over that many axes, and numpy's arrays have more
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self) -> Device:
        return DEVICE

    def devices(self) -> list[Device]:
        return [DEVICE]

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, DTypeObject]:
        require_device(device)
        return {
            "real floating": dtypes.float64,
            "complex floating": dtypes.complex128,
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def dtypes(
        self, *, device: Device | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DTypeObject]:
        require_device(device)
        if kind is None:
            return dict(dtypes.STANDARD)
        if kind == ():
            return {}
        return {n: dtype for n, dtype in dtypes.STANDARD.items() if np.isdtype(dtype, kind)}


def __array_namespace_info__() -> Info:
    return Info()
