"""Prints requirements of pyproject.toml, for installing them without building the package: `dependencies`, or those of
one optional extra.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main(extra: str) -> None:
    """Finds `extra = [...]`; tomllib is not in Python 3.10, and this file has to run before any install."""
    text = Path("pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf"^{re.escape(extra)} = \[([^]]*)\]", text, re.MULTILINE)
    if found is None:
        sys.exit(f"pyproject.toml has no requirements {extra!r}")
    print(" ".join(re.findall(r'"([^"]+)"', found.group(1))))


if __name__ == "__main__":
    main(sys.argv[1])
