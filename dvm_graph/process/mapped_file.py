"""Pages of files that stay where they are, and whether somebody wrote to them since."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.errors import ExternalDataError

if TYPE_CHECKING:
    from typing_extensions import Self


class MappedFile(mmap.mmap):
    """The pages of a whole file, read-only."""

    _path: Path
    _descriptor = -1
    _stamp: tuple[int, int]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises OSError."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            file = cls(descriptor, 0, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(descriptor)
            raise
        file._path, file._descriptor = path, descriptor
        file._stamp = file._look()
        return file

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def check(self) -> None:
        """Raises ExternalDataError if the file was written to since it was mapped."""
        if self._look() != self._stamp:
            raise ExternalDataError(
                f"{str(self._path)!r}, which holds weights, changed since the model was loaded: load "
                "the model again; private_weights=True makes it independent of the file"
            )

    def _look(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns


def file_of(array: NDArray[Any]) -> MappedFile | None:
    """The file in whose pages the array lies, if it does: they may be dropped and read again."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    owner = base.obj if isinstance(base, memoryview) else base
    return owner if isinstance(owner, MappedFile) else None


def drop_pages(array: NDArray[Any]) -> None:
    """Gives back the memory of the pages of a file that the array lies in, if it does: who reads it again, reads the file."""
    file = file_of(array)
    if file is None:
        return
    low, high = np.lib.array_utils.byte_bounds(array)
    start = np.frombuffer(file, np.uint8).ctypes.data
    first = (low - start) // mmap.PAGESIZE * mmap.PAGESIZE
    file.madvise(mmap.MADV_DONTNEED, first, high - start - first)
