"""Runs data-apis/array-api-tests, the suite of the Python array API standard, on the array namespace.

    git clone --recurse-submodules https://github.com/data-apis/array-api-tests
    pip install pytest-json-report 'ndindex>=1.8'
    python -m tests.xp.conformance array-api-tests

Tests that are named in `expected_failures.txt` may fail, each with its reason there; any other failure, and one that is
expected and does not come, makes the exit status 1. The suite is on no package index, so that tests do not need it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

EXPECTED = Path(__file__).with_name("expected_failures.txt")
ROOT = Path(__file__).parents[2]
_FAILED = re.compile(r"^(?:FAILED|ERROR) (array_api_tests/.*?)(?: - .*)?$")


def expected_failures() -> set[str]:
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="of array-api-tests, with its submodule")
    parser.add_argument("--max-examples", type=int, default=50, help="of each property")
    arguments = parser.parse_args()
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=no"),
        *(
            "--disable-warnings",
            "--disable-deadline",
            "--max-examples",
            str(arguments.max_examples),
        ),
        *("--derandomize", "array_api_tests"),
    ]
    environment = os.environ | {
        "ARRAY_API_TESTS_MODULE": "dvm_graph.xp",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        command,
        cwd=arguments.checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode not in (0, 1):
        print(done.stdout[-2000:], done.stderr[-2000:])
        return 1
    failed = {match[1] for line in lines if (match := _FAILED.match(line))}
    expected = expected_failures()
    for name in sorted(failed - expected):
        print(f"fails: {name}")
    for name in sorted(expected - failed):
        print(f"passes, though it is expected to fail: {name}")
    print(lines[-1])
    return int(failed != expected)


if __name__ == "__main__":
    sys.exit(main())
