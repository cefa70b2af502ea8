"""Runs a command that builds C++, and shows the steps of the build while it lasts: `building.py COMMAND...`.

On a terminal they take turns on one line; elsewhere every fifth has one. Where the command fails, all that it said
is printed, and its exit status is kept.
"""

from __future__ import annotations

import re
import subprocess
import sys

_STEP = re.compile(r"\[(\d+)/(\d+)\] \S.*?([\w-]+/[\w.-]+?)(?:\.o)?$")
_EVERY = 5


def main(command: list[str]) -> int:
    said = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            step = _STEP.search(line.rstrip())
            if step is not None:
                _show(int(step[1]), int(step[2]), step[3])
    if sys.stdout.isatty():
        print("\r\x1b[K", end="")
    if process.returncode:
        sys.stderr.writelines(said)
    return process.returncode


def _show(number: int, count: int, what: str) -> None:
    text = f"  {number} of {count}: {what}"
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end="", flush=True)
    elif number % _EVERY == 0 or number == count:
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
