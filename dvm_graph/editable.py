"""Lets an editable install that cannot be written be imported as it was built.

scikit-build-core's finder of an editable install rebuilds the C++ that changed before the compiled module is
imported, under a lock in the build folder. Where that folder is on a read-only file system, or belongs to
somebody else, it would fail though there is nothing to rebuild: the sources cannot be changed there either.
Imported before everything else; without such an install it does nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def _import_as_built() -> None:
    finder: Any
    for finder in sys.meta_path:
        folder = getattr(finder, "path", None)
        ours = "dvm_graph" in getattr(finder, "known_source_files", ())
        if ours and folder and not os.access(folder, os.W_OK):
            finder.rebuild_flag = False


_import_as_built()
