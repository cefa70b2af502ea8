"""Lazy arrays against numpy and torch eager: the same Python functions over each namespace.

`python -m benchmarks.units.arrays [PROGRAM...] [--threads 2] [--rounds 30]`

    chain      gelu by tanh of a sum: twelve element-wise operators
    normalise  a layer norm: two reductions, and operators before, between and after
    newton     square roots by Newton's steps, until no element changes by more than a bound: a loop that looks
               at one number a turn
    branches   per row of a batch, one of two formulas by the sign of the row's sum: as many `if`s as rows

Engines take turns; medians in microseconds. torch does not compile anything. Results are compared with numpy's first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import dvm_graph.xp as xp

Program = Callable[[Any, Any], Any]
SHAPES = ((4, 16), (64, 256), (512, 768), (2048, 2048))


def chain(ns: Any, x: Any) -> Any:
    y = x + x * 0.5
    inner = (y + y * y * y * 0.044715) * 0.7978845608
    return y * (ns.tanh(inner) + 1.0) * 0.5 - x


def normalise(ns: Any, x: Any) -> Any:
    y = x * 2.0 + 1.0
    off = y - ns.sum(y, **{_axis(ns): -1}, keepdims=True) / x.shape[-1]
    variance = ns.sum(off * off, **{_axis(ns): -1}, keepdims=True) / x.shape[-1]
    return off / ns.sqrt(variance + 1e-5) * 0.9 + 0.1


def _axis(ns: Any) -> str:
    return "dim" if ns is torch else "axis"


def newton(ns: Any, x: Any) -> Any:
    target = x * x + 1.0
    root = target
    for _ in range(60):
        better = (root + target / root) * 0.5
        change = ns.max(ns.abs(better - root))
        root = better
        if change < 1e-3:
            break
    return root


def branches(ns: Any, x: Any) -> Any:
    total = x[0] * 0.0
    for row in range(min(x.shape[0], 16)):
        if ns.sum(x[row]) > 0:
            total = total + ns.tanh(x[row]) * x[row]
        else:
            total = total - ns.exp(x[row] * 0.1)
    return total


PROGRAMS: dict[str, Program] = {
    "chain": chain,
    "normalise": normalise,
    "newton": newton,
    "branches": branches,
}


def _timed(ns: Any, program: Program, x: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = np.asarray(program(ns, x))
    return time.perf_counter() - start, result


@click.command()
@click.argument("programs", nargs=-1, type=click.Choice(list(PROGRAMS)))
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=30, show_default=True)
def main(programs: tuple[str, ...], threads: int, rounds: int) -> None:
    """Times PROGRAMS, or all."""
    torch.set_num_threads(threads)
    table = Table("program", "shape", "numpy", "torch", "xp", "numpy / xp", "torch / xp")
    for name in programs or PROGRAMS:
        for shape in SHAPES:
            data = np.random.default_rng(0).normal(size=shape).astype(np.float32)
            engines = {np: data, torch: torch.from_numpy(data), xp: xp.asarray(data)}
            expected = PROGRAMS[name](np, data)
            times: dict[Any, list[float]] = {ns: [] for ns in engines}
            for turn in range(rounds + 3):
                for ns, x in engines.items():
                    seconds, result = _timed(ns, PROGRAMS[name], x)
                    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)
                    if turn >= 3:
                        times[ns].append(seconds * 1e6)
            median = {ns: statistics.median(found) for ns, found in times.items()}
            ratios = [f"{median[ns] / median[xp]:.2f}" for ns in (np, torch)]
            sizes = [f"{median[ns]:.0f}" for ns in (np, torch, xp)]
            table.add_row(name, " x ".join(map(str, shape)), *sizes, *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
