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
    requirements = re.findall(r'"([^"]+)"', found.group(1))
    print(
        " ".join(requirement.replace(" ", "") for requirement in requirements)
    )  # for a shell to split


if __name__ == "__main__":
    main(sys.argv[1])
