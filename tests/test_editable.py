"""An editable install whose build folder cannot be written is imported without a rebuild, and says so
where its C++ has been changed since.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import os, subprocess
writable = os.access
os.access = lambda path, mode, **more: mode != os.W_OK and writable(path, mode, **more)
{stat}
def refuse(*arguments, **more):
    raise SystemExit("rebuilt")
subprocess.run = refuse
import dvm_graph
print(dvm_graph.Model.__name__)
"""

# The clock of the compiled module alone.
OLD = """
from pathlib import Path, PosixPath
stat = Path.stat
class Old:
    st_mtime, st_mode = 0.0, 0o100755
PosixPath.stat = lambda path, **more: Old if path.name.startswith("_core.") else stat(path, **more)
"""


def imported(*flags: str, stat: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *flags, "-c", CODE.format(stat=stat)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("flags", [(), ("-W", "error")])
def test_nothing_is_rebuilt_where_nothing_can_be_written(flags: tuple[str, ...]) -> None:
    done = imported(*flags)
    assert (done.stdout, done.stderr) == ("Model\n", "")


def test_a_changed_source_is_warned_of_once() -> None:
    done = imported(stat=OLD)
    assert done.stdout == "Model\n"
    assert done.stderr.count("which cannot be rebuilt where it is") == 1, done.stderr
