"""The golden files as a whole: none without a test, and no text that another process would change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.golden_cases import GOLDEN, TINY

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "golden"
_PRINT_ALL = """
import sys
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from dvm_graph.report import make_report
from models import tiny_path

for name in sys.argv[1:]:
    compiled = compile_model(tiny_path(name), Options(), lambda done: print(done.name, done.text()))
    print(make_report(compiled))
"""


def test_every_golden_file_belongs_to_a_case() -> None:
    found = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    expected = {f"{folder}/{name}.txt" for folder, names in GOLDEN.items() for name in names}
    assert found == expected, "remove what has no case in tests/golden_cases.py; write what lacks"


def test_texts_do_not_depend_on_hashes() -> None:
    texts = [_all_texts(seed) for seed in ("1", "2")]
    assert "lower_kernels" in texts[0]
    different = [a for a, b in zip(*map(str.splitlines, texts), strict=False) if a != b]
    assert texts[0] == texts[1], f"the first line that differs: {different[:1]}"


def _all_texts(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _PRINT_ALL, *TINY],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
