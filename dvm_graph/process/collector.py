"""Python's collector of garbage, which is not to look through what lives on."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def made_for_good() -> Iterator[None]:
    """What is made meanwhile counts as old right away, and no garbage is looked for.

    Modules live as long as the process, compiled models mostly do. To search all that they are made of takes a tenth of the
    time that modules take to load, a fifth of that of compiling where it is done in between, and a twentieth behind. What
    lies in cycles by then waits for the next search of everything: so graphs that passes take nodes out of leave no cycles
    behind, which would hold weights.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects and not gc.get_freeze_count():  # else `unfreeze` would undo what somebody froze
            gc.freeze()
            gc.unfreeze()
        if collects:
            gc.enable()
