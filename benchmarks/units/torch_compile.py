"""torch.compile with this backend, with Inductor and without a compiler: steps of a module over shapes that change.

`python -m benchmarks.units.torch_compile bert --train --shapes 2x64,4x128,3x77 --repeats 5`

Each engine has a process's modules of its own and takes its turn at each shape, in the order of rounds: times are medians
over rounds, `first` is the time of the first step, compilation included, and `others` that of the first step at each
further shape, together.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

Step = Callable[[int, int], None]
ENGINES = ("eager", "inductor", "dvm")


@click.command()
@click.argument("name", type=click.Choice(["bert", "gpt2"]))
@click.option("--train", is_flag=True, help="Forward and backward, instead of forward alone.")
@click.option("--layers", default=12, show_default=True)
@click.option("--shapes", default="2x64,4x128,3x77", show_default=True, help="batch x tokens.")
@click.option("--repeats", default=5, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--engines", default=",".join(ENGINES), show_default=True)
def main(
    name: str, train: bool, layers: int, shapes: str, repeats: int, threads: int, engines: str
) -> None:
    """Times steps of NAME at its base width with random weights."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    points = [tuple(map(int, shape.split("x"))) for shape in shapes.split(",")]
    module = _module(name, layers).train(train)
    steps = {engine: _step(engine, module, train, threads) for engine in engines.split(",")}
    firsts = {engine: [_time(step, *p) for p in points] for engine, step in steps.items()}
    table = Table(title=f"{name}, {'a training step' if train else 'forward'}, ms")
    for column in ("engine", "first", "others", *(f"{b} x {s}" for b, s in points)):
        table.add_column(column, justify="right")
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(repeats):
        for place, point in enumerate(points):
            for engine, step in steps.items():
                times.setdefault((engine, place), []).append(_time(step, *point))
    for engine in steps:
        first, *others = firsts[engine]
        medians = (statistics.median(times[engine, place]) for place in range(len(points)))
        figures = (first, sum(others), *medians)
        table.add_row(engine, *(f"{1e3 * figure:.1f}" for figure in figures))
    Console(width=120).print(table)


def _module(name: str, layers: int) -> torch.nn.Module:
    if name == "bert":
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return BertModel(BertConfig(num_hidden_layers=layers, **off))
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2Model(GPT2Config(n_layer=layers, use_cache=False, **off))


def _step(engine: str, module: torch.nn.Module, train: bool, threads: int) -> Step:
    own = copy.deepcopy(module)
    called: Callable[..., Any] = own
    if engine != "eager":
        options = {"options": {"cores": threads}} if engine == "dvm" else {}
        called = torch.compile(own, backend=engine, dynamic=True, **options)

    def step(batch: int, tokens: int) -> None:
        ids = torch.randint(0, 1000, (batch, tokens))
        with torch.set_grad_enabled(train):
            result = called(input_ids=ids).last_hidden_state
            if train:
                own.zero_grad()
                result.square().mean().backward()

    return step


def _time(step: Step, batch: int, tokens: int) -> float:
    started = time.perf_counter()
    step(batch, tokens)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
