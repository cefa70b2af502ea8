"""Tables that lose nothing: as wide as their cells, or a record for each row where a terminal is narrower."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

Rows = Sequence[Sequence[str]]


def print_table(
    console: Console, columns: Sequence[str], rows: Rows, *, title: str = "", texts: int = 1
) -> None:
    """Prints rows of cells, of which the first `texts` are text and the others numbers.

    Cells may hold rich's markup.
    """
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < texts else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    unbounded = console.options.update(max_width=1 << 16)
    width = console.measure(table, options=unbounded).maximum
    if width <= console.width:
        console.print(table)
    else:
        _print_records(console, columns, rows, title)


def _print_records(console: Console, columns: Sequence[str], rows: Rows, title: str) -> None:
    label = max(map(len, columns))
    if title:
        console.print(f"\n{title}", style="italic")
    for row in rows:
        console.print()
        for column, cell in zip(columns, row, strict=True):
            if cell:
                console.print(
                    f"[bold]{column:<{label}}[/]  {cell}", soft_wrap=True, highlight=False
                )
