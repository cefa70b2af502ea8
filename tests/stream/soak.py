"""Flushes random programs again and again, from several threads, and looks whether memory grows.

`python -m tests.stream.soak [--flushes 100000] [--threads 2]`
"""

from __future__ import annotations

import threading
from pathlib import Path

import click
import numpy as np

from dvm_graph import _core
from dvm_graph.stream import open_stream
from tests.stream.programs import on_stream, random_program

PROGRAMS = 20


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def flush_programs(stream: _core.Stream, first_seed: int, flushes: int) -> None:
    """Programs take turns; the last result of each is compared with numpy's."""
    programs = [random_program(first_seed + i) for i in range(PROGRAMS)]
    given = [[stream.constant(array) for array in program.given] for program in programs]
    for i in range(flushes):
        program, values = programs[i % PROGRAMS], given[i % PROGRAMS]
        held = on_stream(program, stream, values)
        last = max(held)
        np.testing.assert_array_equal(held[last].numpy(), program.values[last])


@click.command(help=__doc__)
@click.option("--flushes", default=100_000)
@click.option("--threads", default=2)
def main(flushes: int, threads: int) -> None:
    stream = open_stream()
    each = flushes // (10 * threads)
    for tenth in range(10):
        workers = [
            threading.Thread(target=flush_programs, args=(stream, 100 * i, each))
            for i in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        print(f"{(tenth + 1) * each * threads} flushes: {resident_bytes() / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
