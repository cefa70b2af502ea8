"""The file of a saved model: a preamble, contents, and a header behind them.

    0       preamble: magic, format, where the header lies, length of the file, digest
    64      contents: arrays one behind the other, each at a multiple of `ALIGNMENT` (the first at a page)
    ...     header: JSON, to the end of the file

Every byte is checked before anything hangs on it. The digest (BLAKE2b) covers preamble and header, and is
checked when the file is opened. The header holds a CRC-32C for each block of contents, gaps included: those of a
range are checked by `verify`, all of them by the first run (`SavedPages.check`), which reads the pages anyway,
at the rate of memory. Contents stay pages of the file, mapped read-only; small files, and all of them where that
is asked for, are read into memory and checked at once.

Does not protect from those who make files on purpose: a digest is no signature.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dvm_graph import _core
from dvm_graph.errors import (
    DamagedError,
    InputError,
    ModelError,
    UnsupportedError,
    checked_path,
    writing,
)
from dvm_graph.process import MappedFile
from dvm_graph.version import __version__

Bytes: TypeAlias = NDArray[np.uint8]

MAGIC = b"\x89DVM\r\n\x1a\n"
"""No text, so that conversions of line ends show."""
FORMAT = 17
"""Raise it whenever files of before would be read wrongly; those of other versions of the package are refused
anyway."""
ALIGNMENT = 64
"""Of arrays: a line of the caches."""

_PREAMBLE = struct.Struct("<8sIIQQQ24s")
_DIGESTED = _PREAMBLE.size - 24
_PAGE = 4096
_BLOCK = 1 << 18
"""Bytes that have one checksum."""
_READ_UP_TO = 1 << 20
"""Bytes of a file that is read rather than mapped, as of external data."""


def is_saved(source: object) -> bool:
    """Whether this is the path of a file that `SavedWriter` began, whatever became of it."""
    if not isinstance(source, str | PathLike):
        return False
    try:
        with Path(source).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


class SavedWriter:
    """Collects contents, and writes them with their header."""

    def __init__(self) -> None:
        self._arrays: list[tuple[int, Bytes]] = []
        self._end = _PAGE

    def add(self, contents: NDArray[Any] | bytes) -> tuple[int, int]:
        """Where these will lie, and how many bytes they have; they are read when the file is written."""
        array = np.frombuffer(contents, np.uint8) if isinstance(contents, bytes) else contents
        raw: Bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        start = -(-self._end // ALIGNMENT) * ALIGNMENT
        self._arrays.append((start, raw))
        self._end = start + raw.size
        return start, raw.size

    def write(self, path: Path, header: dict[str, Any], threads: int) -> None:
        """Puts the file in the place of one that may be there, whole or not at all.

        Raises:
            InputError: the system lets no such file be written.
        """
        with writing(path), _replacing(path) as file:
            for start, raw in self._arrays:
                file.seek(start)
                file.write(raw.data)
            file.truncate(self._end)
            file.flush()
            contents: Bytes = np.memmap(file, np.uint8, "r", _PREAMBLE.size)
            header = {
                **header,
                "version": __version__,
                "checksums": _core.checksums(contents, _BLOCK, threads).hex(),
            }
            text = json.dumps(header, separators=(",", ":")).encode()
            length = self._end + len(text)
            fields = (MAGIC, FORMAT, 0, self._end, len(text), length)
            digested = _PREAMBLE.pack(*fields, b"")[:_DIGESTED]
            file.seek(self._end)
            file.write(text)
            file.seek(0)
            file.write(digested + _digest(digested, text))


@dataclass(frozen=True, slots=True)
class _Checksums:
    """Of the blocks of a file's contents."""

    path: Path
    start: int
    length: int
    sums: NDArray[np.uint32]

    def check(self, file: memoryview, offset: int, size: int) -> None:
        """Raises DamagedError where blocks that hold some of these bytes are not what was saved."""
        first, last = (offset - self.start) // _BLOCK, -(-(offset + size - self.start) // _BLOCK)
        begin = self.start + first * _BLOCK
        end = min(self.start + last * _BLOCK, self.start + self.length)
        sums = _core.checksums(file[begin:end], _BLOCK, _core.available_cores())
        wrong = np.flatnonzero(np.frombuffer(sums, np.uint32) != self.sums[first:last])
        if wrong.size:
            at = begin + int(wrong[0]) * _BLOCK
            last_byte = min(at + _BLOCK, end)
            raise damaged(self.path, f"bytes {at} to {last_byte} are not what was saved")


class SavedPages(MappedFile):
    """The pages of a saved model, checked when a run first needs them."""

    unchecked: _Checksums | None = None
    """None: they were checked."""

    def check(self) -> None:
        """Raises DamagedError if contents are not what was saved, ExternalDataError if they changed since."""
        super().check()
        sums = self.unchecked
        if sums is not None:
            sums.check(memoryview(self), sums.start, sums.length)
            self.unchecked = None


class SavedFile:
    """A saved model that is open: its header, and arrays over its contents."""

    def __init__(self, path: str | PathLike[str], *, private: bool = False) -> None:
        """Opens the file.

        `private`: reads all of it, so that what becomes of the file does not matter.

        Raises:
            InputError: it is no path.
            ModelError: there is no such file, or it cannot be read.
            DamagedError: it is no saved model, or not as it was saved.
            UnsupportedError: another version saved it.
        """
        self.path = checked_path(path)
        self.pages: SavedPages | None = None
        self._data = self._open(private)
        try:
            self.header = self._read_header()
            start, sums = _PREAMBLE.size, bytes.fromhex(self.header["checksums"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self.damaged(f"its header is none ({type(error).__name__})") from error
        length = self._header_at - start
        if len(sums) != -(-length // _BLOCK) * 4:
            raise self.damaged("it has another number of checksums than blocks")
        self._sums = _Checksums(self.path, start, length, np.frombuffer(sums, np.uint32))
        if self.pages is None:
            self.verify(start, length)
        else:
            self.pages.unchecked = self._sums

    def array(self, offset: int, size: int) -> Bytes:
        """Bytes of the contents, read-only and not checked yet."""
        start, length = self._sums.start, self._sums.length
        if not start <= offset <= offset + size <= start + length:
            raise self.damaged(f"it has no bytes {offset} to {offset + size}")
        return self._data[offset : offset + size]

    def copy(self, offset: int, size: int) -> bytes:
        """Bytes of the contents; raises as `verify`."""
        self.verify(offset, size)
        return self.array(offset, size).tobytes()

    def copy_to(self, path: Path) -> None:
        """Writes the file once more, as `SavedWriter.write` does.

        Raises:
            InputError: the system lets no such file be written; else as `verify`.
        """
        self.verify(self._sums.start, self._sums.length)
        with writing(path), _replacing(path) as file:
            file.write(self._data.data)

    def verify(self, offset: int, size: int) -> None:
        """Checks the blocks that hold some of the contents.

        Raises:
            DamagedError: they are not what was saved.
            ExternalDataError: somebody wrote to the file since it was opened: it may have fewer pages than then.
        """
        if self.pages is not None:
            MappedFile.check(self.pages)
        self._sums.check(self._data.data, offset, size)

    def damaged(self, what: str) -> DamagedError:
        return damaged(self.path, what)

    def _open(self, private: bool) -> Bytes:
        try:
            if private or self.path.stat().st_size <= _READ_UP_TO:
                data = np.fromfile(self.path, np.uint8)
                data.flags.writeable = False
                return data
            pages = self.pages = SavedPages.open(self.path)
            return np.frombuffer(pages, np.uint8)
        except OSError as error:
            raise ModelError(f"cannot read {str(self.path)!r}: {error.strerror}") from error

    def _read_header(self) -> dict[str, Any]:
        preamble = self._data[: _PREAMBLE.size].tobytes()
        if preamble[: len(MAGIC)] != MAGIC or len(preamble) < _PREAMBLE.size:
            raise DamagedError(f"{str(self.path)!r} is no model that dvm_graph saved")
        _, version, _, at, size, length, digest = _PREAMBLE.unpack(preamble)
        if version != FORMAT:
            raise self._other_version(f"its format is {version}", f"format {FORMAT}")
        if length != self._data.size or at + size != length or at < _PAGE:
            raise self.damaged(f"it has {self._data.size} bytes, but was saved with {length}")
        self._header_at = at
        text = self._data[at:].tobytes()
        if _digest(preamble[:_DIGESTED], text) != digest:
            raise self.damaged("its header is not what was saved")
        header: dict[str, Any] = json.loads(text)
        if header.get("version") != __version__:
            writer = f"dvm_graph {header.get('version')}"
            raise self._other_version(f"{writer} saved it", f"files of {__version__}")
        return header

    def _other_version(self, saved: str, known: object) -> UnsupportedError:
        return UnsupportedError(
            f"{str(self.path)!r}: {saved}, but this version reads {known} alone: save the model again"
        )


def damaged(path: Path, what: str) -> DamagedError:
    return DamagedError(f"{str(path)!r}: {what}; save the model again")


def _digest(preamble: bytes, header: bytes) -> bytes:
    return hashlib.blake2b(preamble + header, digest_size=24).digest()


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file, of this thread alone, that takes the place of another one once it is written."""
    if path.exists() and not path.is_file():
        raise InputError(f"cannot write {str(path)!r}: it is neither a file nor a new one")
    temporary = path.with_name(f".{os.getpid()}.{threading.get_ident()}.dvm")
    try:
        with temporary.open("w+b") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
