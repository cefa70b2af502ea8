"""An editable install whose build folder cannot be written is imported without a rebuild."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import os, subprocess
writable = os.access
os.access = lambda path, mode, **more: mode != os.W_OK and writable(path, mode, **more)
def refuse(*arguments, **more):
    raise SystemExit("rebuilt")
subprocess.run = refuse
import dvm_graph
print(dvm_graph.Model.__name__)
"""


@pytest.mark.parametrize("flags", [(), ("-W", "error")])
def test_nothing_is_rebuilt_where_nothing_can_be_written(flags: tuple[str, ...]) -> None:
    command = [sys.executable, *flags, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("Model\n", "")
