"""`dvm-graph bench`: how long runs of a model take, and where the time goes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dvm_graph.cli.arrays import Arrays, load_arrays
from dvm_graph.cli.dims import DimRanges, all_dims, input_options, text_of
from dvm_graph.cli.request import (
    Request,
    answers,
    each,
    model_command,
    output_option,
    print_json,
    working,
)
from dvm_graph.cli.tables import print_table
from dvm_graph.comparison import Timing, reference_session, time_model
from dvm_graph.errors import InputError
from dvm_graph.feeds import random_feeds
from dvm_graph.model import Model
from dvm_graph.profile import Profile, tables
from dvm_graph.profile.text import summary


@click.command()
@model_command
@input_options(
    "Extents of a dim, repeatable, as for compare: batch=1,2,4, seq=1:128:x2. Default: what operators demand, or 2."
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Runs behind the first one, of which the median is shown.",
)
@click.option("--against-onnxruntime", is_flag=True, help="Time onnxruntime too, turn by turn.")
@click.option("--profile", is_flag=True, help="Show where the time goes, too.")
@output_option(
    "--trace", text="Write the profile as a Chrome trace, for Perfetto; takes one shape."
)
def bench(
    request: Request,
    feeds: Path | None,
    dims: DimRanges,
    seed: int,
    repeats: int,
    against_onnxruntime: bool,
    profile: bool,
    trace: Path | None,
) -> None:
    """Time runs of MODEL: the first at each shape, and the median of those that repeat it."""
    model = request.optimize()
    points = all_dims(model, dims) if feeds is None else [{}]
    if trace is not None and len(points) > 1:
        raise InputError(f"--trace takes one shape, but there are {len(points)}")
    session = None
    if against_onnxruntime:
        with working("loading onnxruntime's session"):
            session = reference_session(
                request.onnx_path(), threads=model.cores, spin_between_runs=False
            )
    timings, profiles = [], []
    for point in each(points, "timing"):
        arrays = _arrays(model, feeds, point, seed)
        timings.append(time_model(model, arrays, repeats, session))
        if profile or trace is not None:
            profiles.append(model.profile(arrays, repeats=repeats))
    if trace is not None:
        profiles[0].write_trace(trace)
        request.note(f"trace written to {trace}")
    if request.as_json:
        print_json(_plain(points, timings, profiles if profile else []))
    else:
        _print(answers(), points, timings, profiles if profile else [])


def _arrays(model: Model, feeds: Path | None, dims: dict[str, int], seed: int) -> Arrays:
    return random_feeds(model, dims, seed) if feeds is None else load_arrays(feeds)


def _plain(
    points: list[dict[str, int]], timings: list[Timing], profiles: list[Profile]
) -> list[dict[str, Any]]:
    entries = [
        {"dims": dims, **asdict(timing)} for dims, timing in zip(points, timings, strict=True)
    ]
    for entry, profile in zip(entries, profiles, strict=False):
        entry["profile"] = profile.to_dict()
    return entries


def _print(
    console: Console, points: list[dict[str, int]], timings: list[Timing], profiles: list[Profile]
) -> None:
    both = timings[0].onnxruntime_seconds is not None
    columns = ["dims", "first run", "median", "fastest", "slowest"]
    if both:
        columns += ["onnxruntime", "ratio"]
    rows = []
    for dims, timing in zip(points, timings, strict=True):
        cells = [timing.first_seconds, timing.seconds, timing.fastest_seconds]
        cells.append(timing.slowest_seconds)
        row = [text_of(dims), *(f"{seconds * 1e3:.3f} ms" for seconds in cells)]
        if timing.onnxruntime_seconds is not None:
            row.append(f"{timing.onnxruntime_seconds * 1e3:.3f} ms")
            row.append(f"{timing.onnxruntime_seconds / timing.seconds:.2f}x")
        rows.append(row)
    print_table(console, columns, rows)
    for dims, profile in zip(points, profiles, strict=False):
        console.print(f"\n{text_of(dims)}\n{summary(profile)}", highlight=False, markup=False)
        for part in tables(profile):
            print_table(console, part.columns, part.rows, title=part.title)
