"""Every ONNX operator that is compiled, alone, at three sizes and in the types that it is met with, against onnxruntime.

`python -m benchmarks.units.every [--only Gather] [--below 0.9] [--threads 2] [--rounds 20] [--again FILE] [--write FILE]`

All dims are dynamic, but for those that weights fix. Both engines take turns, in processes of their own, which are
stopped meanwhile. What is shown is onnxruntime's median time over ours, the lowest first. Operators of which
`benchmarks.units.alone` or `.recurrent` has more (GridSample, DFT, LSTM) are met once or not at all here.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from benchmarks.units import computed, moved
from benchmarks.units.cases import Case, Comparison

_FAMILIES = (
    computed.unary,
    computed.binary,
    computed.reductions,
    computed.norms,
    moved.moving,
    computed.images,
    computed.products,
)
SIZES = {"small": 1000, "middle": 100_000, "large": 10_000_000}


def cases(only: str, sizes: Sequence[str]) -> Iterator[Case]:
    wanted = only.lower().split(",")
    for family, size in itertools.product(_FAMILIES, sizes):
        for case in family(size, SIZES[size]):
            if any(part in f"{case.op} {case.name}".lower() for part in wanted):
                yield case


@click.command()
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=20, show_default=True)
@click.option("--only", default="", help="cases whose names have one of these, with commas between")
@click.option("--size", "sizes", multiple=True, default=tuple(SIZES))
@click.option("--below", default=1e9, help="lists those under this ratio")
@click.option("--again", type=Path, help="only those that were under `--below` in this file")
@click.option("--write", type=Path, help="JSON: ratio and seconds of each")
def main(
    threads: int,
    rounds: int,
    only: str,
    sizes: tuple[str, ...],
    below: float,
    again: Path | None,
    write: Path | None,
) -> None:
    """Onnxruntime's time over ours."""
    chosen = None
    if again is not None:
        chosen = {name for ratio, name, _ in json.loads(again.read_text()) if ratio < below}
    named = ((f"{case.op} {case.name}", case) for case in cases(only, sizes))
    comparison = Comparison(threads, rounds)
    comparison.take((one for one in named if chosen is None or one[0] in chosen), write)
    comparison.show(below)


if __name__ == "__main__":
    main()
