"""Lets an editable install that cannot be written be imported as it was built.

scikit-build-core's finder of an editable install rebuilds the C++ that changed before the compiled module is
imported, under a lock in the build folder. Where that folder is on a read-only file system, or belongs to
somebody else, it would fail though there is mostly nothing to rebuild: the sources are not to be changed
there either. Where one has been changed since the build all the same, a warning says so.
Imported before everything else; without such an install it does nothing.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any


def _import_as_built() -> None:
    finder: Any
    for finder in sys.meta_path:
        folder = getattr(finder, "path", None)
        ours = "dvm_graph" in getattr(finder, "known_source_files", ())
        if ours and folder and not os.access(folder, os.W_OK):
            finder.rebuild_flag = False
            _warn_if_changed(Path(finder.known_wheel_files["dvm_graph._core"]))


def _warn_if_changed(module: Path) -> None:
    """Compares the compiled module with the C++ that it was built from; installed files have times in whole seconds."""
    built = int(module.stat().st_mtime) if module.exists() else 0
    for pattern in ("*.cpp", "*.h", "*.def"):
        for source in Path(__file__).parent.rglob(pattern):
            if int(source.stat().st_mtime) > built:
                warnings.warn(
                    f"{source} is newer than {module}, which cannot be rebuilt where it is: "
                    "dvm_graph runs as it was built",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return


_import_as_built()
