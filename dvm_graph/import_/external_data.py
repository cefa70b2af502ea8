"""External data of a model: tensors that live in files beside it.

In: a tensor's `external_data` entries and the model's folder. Out: just the tensor's bytes, read-only.
Small files are read; of others the pages are mapped, once per import, so that processes share them.

Model files are untrusted. A location is refused when it is absolute, contains `..`, or leads out of
the folder through a symbolic link; offset and length are checked against the size of the file and
the size the tensor's shape asks for before anything is mapped. Does not verify checksums.

A file that somebody writes into while its pages are mapped changes the weights, and one that shrinks
ends the process that reads behind its end. Runs therefore look whether a file changed (`MappedFile`), but
cannot prevent that it does so during a run; who has to exclude it reads all files (`private_weights`).
Replacing a file by another one of the same name changes nothing.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import onnx

from dvm_graph.errors import ExternalDataError
from dvm_graph.process import MappedFile, digest_of

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


READ_UP_TO = 1 << 20
"""Bytes of a file that is read rather than mapped."""


class ExternalData:
    """The files beside one model. `folder` is None for a model that did not come from a file."""

    def __init__(self, folder: Path | None, *, private: bool = False) -> None:
        self._folder = folder
        self._read_up_to = None if private else READ_UP_TO
        self._maps: dict[str, Bytes] = {}

    def read(self, tensor: onnx.TensorProto, expected: int) -> Bytes:
        """Maps the `expected` bytes of a tensor.

        Raises:
            ExternalDataError: the file is missing, too short, outside the folder, or the entries
                contradict the tensor's shape.
        """
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if not location:
            raise ExternalDataError(f"tensor {tensor.name!r}: external data without a location")
        offset = _number(tensor.name, entries, "offset", 0)
        length = _number(tensor.name, entries, "length", expected)
        if length != expected:
            raise ExternalDataError(
                f"tensor {tensor.name!r}: external data of {length} bytes, "
                f"but its shape and type need {expected}"
            )
        if length == 0:
            return np.empty(0, np.uint8)
        data = self._map(tensor.name, location)
        if offset + length > data.size:
            raise ExternalDataError(
                f"tensor {tensor.name!r}: bytes {offset} to {offset + length} lie past the end of "
                f"{location!r} ({data.size} bytes); is the file truncated?"
            )
        return data[offset : offset + length]

    def digests(self) -> dict[str, str]:
        """Of the files that were read so far, by location."""
        return {location: digest_of(data) for location, data in self._maps.items()}

    def _map(self, tensor_name: str, location: str) -> Bytes:
        data = self._maps.get(location)
        if data is None:
            path = self._path_inside_folder(tensor_name, location)
            try:
                data = self._bytes_of(path)
            except OSError as error:
                raise ExternalDataError(
                    f"tensor {tensor_name!r}: cannot read external data {location!r}: {error}"
                ) from error
            self._maps[location] = data
        return data

    def _bytes_of(self, path: Path) -> Bytes:
        if self._read_up_to is None or path.stat().st_size <= self._read_up_to:
            data = np.fromfile(path, np.uint8)
            data.flags.writeable = False
            return data
        return np.frombuffer(MappedFile.open(path), np.uint8)

    def _path_inside_folder(self, tensor_name: str, location: str) -> Path:
        prefix = f"tensor {tensor_name!r}: external data {location!r}"
        if self._folder is None:
            raise ExternalDataError(
                f"{prefix} needs the model's folder; pass the path of the model, "
                "or load its external data first"
            )
        posix, windows = PurePosixPath(location), PureWindowsPath(location)
        if posix.is_absolute() or windows.drive or windows.root:
            raise ExternalDataError(f"{prefix} is an absolute path; it must be inside the folder")
        if ".." in windows.parts or "\0" in location:
            raise ExternalDataError(f"{prefix} leads outside the model's folder")
        path = self._folder / location
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise ExternalDataError(f"{prefix} is missing from {str(self._folder)!r}") from error
        if not real.is_relative_to(self._folder.resolve()):
            raise ExternalDataError(f"{prefix} leads outside the model's folder through a link")
        if not real.is_file():
            raise ExternalDataError(f"{prefix} is not a regular file")
        return real


def _number(tensor_name: str, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key)
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ExternalDataError(
            f"tensor {tensor_name!r}: external data {key} {text[:40]!r} is not a valid number"
        )
    return int(text)
