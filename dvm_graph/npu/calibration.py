"""What was measured of this CPU for this user: a file in the user's cache folder.

`dvm-graph calibrate` measures (`measure`) and keeps it (`store`); `npu/machine.py` reads it (`load`). The
file says for which CPU and by which version of the measurements it is: one that is for another is
stale. Where nothing can be written or read, nothing breaks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from dvm_graph.npu.cpu import Cpu

VERSION = 1
"""Of what the numbers mean; files of other versions are stale."""


class UnusableError(ValueError):
    """The file is there, but stale or damaged."""


def file_of(cpu: Cpu) -> Path:
    """Where the measurements of a CPU are kept, by the XDG convention."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = folder if folder.is_absolute() else Path.home() / ".cache"
    return root / "dvm_graph" / f"machine-{cpu.key}.json"


def load(cpu: Cpu) -> dict[str, float] | None:
    """The measured numbers by name; None: nobody has measured.

    Raises:
        UnusableError: the file is stale or damaged.
    """
    try:
        path = file_of(cpu)
        text = path.read_text(encoding="utf-8")
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    except UnicodeError as error:
        raise UnusableError(f"{path} is damaged: {error}") from error
    try:
        content = json.loads(text)
        version, of, numbers = content["version"], content["cpu"], content["numbers"]
        named = {str(name): value for name, value in numbers.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnusableError(f"{path} is damaged: {error!r}") from error
    if version != VERSION or of != cpu.key:
        raise UnusableError(f"{path} is of another version or CPU")
    return named


def store(cpu: Cpu, numbers: Mapping[str, float]) -> Path:
    """Writes the file, at once or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path = file_of(cpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    content = {"version": VERSION, "cpu": cpu.key, "numbers": dict(numbers)}
    try:
        fresh.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return path
