"""Eager operators of torch inside of `eager()` against torch alone, the same functions on the same tensors.

`python -m benchmarks.units.eager [PROGRAM...] [--threads 2] [--rounds 30]`

    chain      gelu by tanh of a sum: twelve element-wise operators
    normalise  a residual sum and `layer_norm`
    loop       four turns of an update in place
    newton     square roots by Newton's steps, until no element changes by more than a bound: a value is looked at in
               every turn

The context is entered and left in every round, so that results are ordinary tensors. Turns are taken; medians in
microseconds. Results are compared first.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable

import click
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

from dvm_graph.torch_backend import eager

SHAPES = ((4, 16), (64, 256), (512, 768), (2048, 2048))


def chain(x: torch.Tensor) -> torch.Tensor:
    y = x + x * 0.5
    inner = (y + y * y * y * 0.044715) * 0.7978845608
    return y * (torch.tanh(inner) + 1.0) * 0.5 - x


def normalise(x: torch.Tensor) -> torch.Tensor:
    y = F.layer_norm(x * 2.0 + x.abs(), x.shape[-1:])
    return y * 0.9 + 0.1


def loop(x: torch.Tensor) -> torch.Tensor:
    state = torch.zeros_like(x)
    for _ in range(4):
        state += torch.sigmoid(x - state) * 0.5
        state *= 0.9
    return state


def newton(x: torch.Tensor) -> torch.Tensor:
    target = x * x + 1.0
    root = target
    for _ in range(60):
        better = (root + target / root) * 0.5
        change = (better - root).abs().max()
        root = better
        if change < 1e-3:
            break
    return root


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "chain": chain,
    "normalise": normalise,
    "loop": loop,
    "newton": newton,
}


def _fused(program: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    with eager():
        return program(x)


def _timed(
    run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, expected: torch.Tensor
) -> float:
    start = time.perf_counter()
    result = run(x)
    seconds = time.perf_counter() - start
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
    return seconds * 1e6


@click.command()
@click.argument("programs", nargs=-1, type=click.Choice(list(PROGRAMS)))
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=30, show_default=True)
def main(programs: tuple[str, ...], threads: int, rounds: int) -> None:
    """Times PROGRAMS, or all."""
    torch.set_num_threads(threads)
    table = Table("program", "shape", "torch", "eager()", "torch / eager()")
    for name in programs or PROGRAMS:
        program = PROGRAMS[name]
        for shape in SHAPES:
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            expected = program(x)
            times: tuple[list[float], list[float]] = [], []
            for turn in range(rounds + 3):
                fused = functools.partial(_fused, program)
                both = _timed(program, x, expected), _timed(fused, x, expected)
                if turn >= 3:
                    for kept, one in zip(times, both, strict=True):
                        kept.append(one)
            theirs, mine = map(statistics.median, times)
            sizes = f"{theirs:.0f}", f"{mine:.0f}", f"{theirs / mine:.2f}"
            table.add_row(name, " x ".join(map(str, shape)), *sizes)
    Console().print(table)


if __name__ == "__main__":
    main()
