"""dvm_graph: a real-time compiler for ONNX models whose shapes are known only when they run.

The public names are those of `__init__.pyi`, which type checkers read. Each is loaded when it is asked
for: numpy, onnx and onnxruntime take a second to load, and cost no program time that does
not use them.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

from dvm_graph import editable as editable  # first, before the compiled module is looked for
from dvm_graph.version import __version__ as __version__

importlib.import_module("dvm_graph._core")  # what is missing or out of date shows here

_HOMES = {
    alias.name: statement.module
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(statement, ast.ImportFrom) and statement.module is not None
    for alias in statement.names
}
"""The module of each public name. None is called as a module of this package, which would take its place, but for
modules that are public themselves: their home is the package.
"""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    if home == __name__:
        return importlib.import_module(f"{home}.{name}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
