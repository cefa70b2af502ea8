"""The extension is built for Python's stable ABI (pyproject.toml: wheel.py-api) where Python has it, from 3.12 on.

An older Python builds it without, and takes what the stable ABI leaves out: macros that look into objects.
"""

from __future__ import annotations

import re
from pathlib import Path

CORE = Path(__file__).resolve().parent.parent / "dvm_graph"
MACRO = re.compile(
    r"\bPy[A-Z]\w*?_(?:GET|SET|AS|READ|KIND|DATA|LENGTH|ITEMS?|IS|MAX)(?:_[A-Z_]+)?\b"
)


def test_bindings_keep_to_the_stable_abi() -> None:
    sources = [path for suffix in ("*.cpp", "*.h") for path in CORE.rglob(suffix)]
    found = {
        f"{path.relative_to(CORE)}: {name}"
        for path in sources
        for name in MACRO.findall(path.read_text(encoding="utf-8"))
    }
    assert any("bindings" in path.name for path in sources)
    assert not found
