"""What was compiled once, kept for the next start: saved models in a folder (`Options.cache`).

An entry is found by a digest of what the compiler reads: the ONNX file, the options that it settles, the compiler itself
and the libraries that it stands on. Where the ONNX file names files of weights, the entry says what was in them, and it is taken
only where they still hold that. An entry that is not as it was written, or not for this model any more, is none: the model
is compiled, and takes its place.

Nothing about a cache is fatal: a model that cannot be kept is compiled at each start, with a `CacheWarning`. A process
whose compiler was replaced since it started keeps nothing.

Does not remove entries: nothing breaks when somebody else does, at any time.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from dvm_graph import _core
from dvm_graph.errors import ModelError, UnsupportedError
from dvm_graph.options import Options
from dvm_graph.process import MappedFile, digest_of
from dvm_graph.saving.load import RUN_OPTIONS, SavedModel, load_model
from dvm_graph.saving.plain import to_plain
from dvm_graph.version import __version__

CACHE_VARIABLE = "DVM_CACHE"
"""Names the folder where no option does."""
_LIBRARIES = ("networkx", "numpy", "onnx", "onnxruntime")
_PACKAGE = Path(__file__).parents[1]
_STARTED = time.time_ns()


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a model, compiled with some options, is kept."""

    source: Any
    options: Options
    path: Path
    """Of the file, whether there is one or not."""

    def load(self) -> SavedModel | None:
        """The model, checked to the last weight; None where it has to be compiled."""
        given = {name: getattr(self.options, name) for name in RUN_OPTIONS}
        try:
            if not self.path.is_file():
                return None
            saved = load_model(self.path, given)
            if not self._holds(saved.description.data_files):
                return None
            if saved.file.pages is not None:
                saved.file.pages.check()
        except (ModelError, UnsupportedError, OSError, ValueError):
            return None  # the last two: of the name of the folder, or a right that is missing
        return saved

    def keep(
        self, data_files: Mapping[str, str] | None, save: Callable[[Path], None]
    ) -> str | None:
        """Lets `save` write the model, if its files are still those that were compiled, and those of the compiler. What the system
        has against it; None: nothing.
        """
        changed = entry_of(self.source, self.options) != self or not self._holds(data_files)
        if changed or any(written > _STARTED for _, _, written in _compiler()):
            return None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            save(self.path)
        except (OSError, ValueError, UnsupportedError) as error:
            return f"the compiled model is not kept in {str(self.path.parent)!r}: {error}"
        return None

    def _holds(self, data_files: Mapping[str, str] | None) -> bool:
        """Whether the files of weights are as they were; None: nobody knows."""
        if not data_files:
            return data_files is not None
        if not isinstance(self.source, str | PathLike):
            return False
        folder = Path(self.source).parent
        try:
            for location, digest in data_files.items():
                path = (folder / location).resolve(strict=True)
                if not (path.is_relative_to(folder.resolve()) and path.is_file()):
                    return False
                if digest_of(memoryview(MappedFile.open(path))) != digest:
                    return False
        except (OSError, ValueError):  # the latter: one is empty
            return False
        return True


def entry_of(source: str | PathLike[str] | bytes | Any, options: Options) -> Entry | None:
    """None where there is no cache, or nothing that it could hold: it is the compiling that was asked for, or the model
    cannot be read.
    """
    dumps = options.dump or os.environ.get("DVM_DUMP")
    if not options.cache or options.device or options.check or dumps:
        return None
    try:
        if isinstance(source, str | PathLike):
            name, content = Path(source).name, Path(source).read_bytes()
        else:
            name, content = "", _bytes_of(source)
    except (OSError, ValueError, TypeError):  # for `optimize` to say
        return None
    settled = to_plain(options)
    for run_option in ("cache", *RUN_OPTIONS):
        del settled[run_option]
    key = hashlib.blake2b(content, digest_size=16)
    key.update(json.dumps([name, settled, _compiler()], sort_keys=True).encode())
    return Entry(source, options, Path(options.cache) / f"{key.hexdigest()}.dvm")


def _bytes_of(source: Any) -> bytes:
    """Of a model in memory. Raises TypeError or ValueError where it is none, or too large."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if not hasattr(source, "SerializeToString"):
        raise TypeError
    content: bytes = source.SerializeToString(deterministic=True)
    return content


@functools.cache
def _compiler() -> list[tuple[str, int, int]]:
    """What tells this compiler from others: name, size and time of each of its files, and of the libraries'."""
    found = (importlib.util.find_spec(name) for name in _LIBRARIES)
    files = [Path(spec.origin) for spec in found if spec is not None and spec.origin]
    files += [*_python_files(_PACKAGE), Path(_core.__file__)]
    stats = sorted((str(path), path.stat()) for path in files)
    return [(__version__, 0, 0), *((path, s.st_size, s.st_mtime_ns) for path, s in stats)]


def _python_files(folder: str | PathLike[str]) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _python_files(entry.path)
            elif entry.name.endswith(".py"):
                yield Path(entry.path)
