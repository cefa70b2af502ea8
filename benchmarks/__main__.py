"""`python -m benchmarks [--models bert,gpt2] [--threads 2] [--repeats 11] [--output build/bench]`."""

from __future__ import annotations

import csv
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.models import GRIDS, ModelResult, run_model
from models import base_path

COLUMNS = (
    "model",
    "dims",
    "dvm_graph ms",
    "onnxruntime ms",
    "speed-up",
    "first/repeat",
    "compile mean us",
    "compile max us",
    "noise",
    "max error",
)


@click.command()
@click.option("--models", "names", default=",".join(GRIDS), show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--repeats", default=11, show_default=True, help="Timed runs per shape and engine.")
@click.option("--quick", is_flag=True, help="Three repeats.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build/bench"))
def main(names: str, threads: int, repeats: int, quick: bool, output: Path) -> None:
    """Compares whole models with onnxruntime and writes CSV and Markdown."""
    console = Console()
    chosen = names.split(",")
    missing = [name for name in chosen if not base_path(name).exists()]
    if missing:
        raise click.UsageError(f"no base export of {', '.join(missing)}: run `make models-base`")
    results = [
        run_model(name, threads, 3 if quick else repeats)
        for name in track(chosen, "models", console=Console(stderr=True))
    ]
    console.print(_points_table(results))
    console.print(_summary_table(results))
    output.mkdir(parents=True, exist_ok=True)
    _write_csv(results, output / "models.csv")
    (output / "models.md").write_text(_markdown(results))
    console.print(f"written to {output}/models.csv and {output}/models.md")


def _point_rows(results: list[ModelResult]) -> list[tuple[str, ...]]:
    return [
        (
            result.name,
            " ".join(f"{name}={extent}" for name, extent in point.dims.items()),
            f"{point.repeat * 1e3:.2f}",
            f"{point.onnxruntime * 1e3:.2f}",
            f"{point.speedup:.3f}",
            f"{point.first / point.repeat:.3f}",
            f"{point.compile_mean_us:.2f}",
            f"{point.compile_max_us:.2f}",
            f"{point.noise:.3f}",
            f"{point.max_error:.1e}",
        )
        for result in results
        for point in result.points
    ]


SUMMARY = (
    "model",
    "basic operators",
    "kernels",
    "speed-up (geomean)",
    "first/repeat",
    "load/onnxruntime",
    "memory/onnxruntime",
)


def _summary_rows(results: list[ModelResult]) -> list[tuple[str, ...]]:
    return [
        (
            result.name,
            str(result.basic_operators),
            str(result.kernels),
            f"{result.speedup:.3f}",
            f"{result.first_over_repeat:.3f}",
            f"{result.load_ratio:.2f}",
            f"{result.memory_ratio:.2f}",
        )
        for result in results
    ]


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table


def _points_table(results: list[ModelResult]) -> Table:
    return _table("per shape (medians, interleaved)", COLUMNS, _point_rows(results))


def _summary_table(results: list[ModelResult]) -> Table:
    return _table("per model", SUMMARY, _summary_rows(results))


def _markdown(results: list[ModelResult]) -> str:
    def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
        lines = [columns, tuple("---" for _ in columns), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    points, summary = _point_rows(results), _summary_rows(results)
    return f"{table(COLUMNS, points)}\n\n{table(SUMMARY, summary)}\n"


def _write_csv(results: list[ModelResult], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(_point_rows(results))


if __name__ == "__main__":
    main()
