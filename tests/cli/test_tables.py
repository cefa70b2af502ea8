"""Tables show every cell, whatever the width of the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dvm_graph.cli.tables import print_table

COLUMNS = ("dims", "output", "max error", "relative", "dvm_graph", "onnxruntime")
ROWS = [
    ("batch=1 seq=5", "last_hidden_state", "7.45e-07", "2.40e-07", "105.287 ms", "107.448 ms"),
    ("", "pooler_output", "1.19e-07", "", "", ""),
]


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_cell_is_cut(width: int) -> None:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    print_table(console, COLUMNS, ROWS, title="Times")
    text = file.getvalue()
    assert "Times" in text
    assert all(cell in text for row in ROWS for cell in row)
    assert all(column in text for column in COLUMNS)
    rows = [line for line in text.splitlines() if "last_hidden_state" in line]
    assert ("105.287 ms" in rows[0]) == (width == 200)
