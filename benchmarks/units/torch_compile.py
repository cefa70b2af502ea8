"""torch.compile with this backend, with Inductor and without a compiler: steps of a module over shapes that change.

`python -m benchmarks.units.torch_compile bert --layers 4 --train --shapes 2x64,4x128,3x77 --repeats 5`

Shapes are a batch and tokens, or a batch and the sides of images; `--layers` are those of a transformer, or of each stage of a
network of images. Dropout is on in training, as it is when people train.

Each engine has a process's modules of its own and takes its turn at each shape, in the order of rounds: times are medians
over rounds, `first` is the time of the first step, compilation included, and `others` that of the first step at each
further shape, together. `--engines eager,inductor,inductor_frozen,dvm,dvm_frozen`: those with parameters as constants, too.
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
from transformers import (
    BertConfig,
    BertModel,
    ConvNextConfig,
    ConvNextModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    MobileNetV2Config,
    MobileNetV2Model,
    ResNetConfig,
    ResNetModel,
    ViTConfig,
    ViTModel,
)

Step = Callable[[int, int], None]
ENGINES = ("eager", "inductor", "dvm")
LLAMA = {"hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12}
RESNET = {"layer_type": "basic", "hidden_sizes": [64, 128, 256, 512]}
MODELS: dict[str, Callable[[int], torch.nn.Module]] = {
    "bert": lambda layers: BertModel(BertConfig(num_hidden_layers=layers)),
    "gpt2": lambda layers: GPT2Model(GPT2Config(n_layer=layers, use_cache=False)),
    "llama": lambda layers: LlamaModel(
        LlamaConfig(num_hidden_layers=layers, vocab_size=1000, use_cache=False, **LLAMA)
    ),
    "vit": lambda layers: ViTModel(ViTConfig(num_hidden_layers=layers)),
    "resnet": lambda layers: ResNetModel(ResNetConfig(depths=[layers] * 4, **RESNET)),
    "convnext": lambda layers: ConvNextModel(ConvNextConfig(depths=[layers] * 4)),
    "mobilenet": lambda _layers: MobileNetV2Model(MobileNetV2Config()),
}
IMAGES = ("vit", "resnet", "convnext", "mobilenet")


@click.command()
@click.argument("name", type=click.Choice(list(MODELS)))
@click.option("--train", is_flag=True, help="Forward and backward, instead of forward alone.")
@click.option(
    "--dtype", type=click.Choice(("float32", "bfloat16")), default="float32", show_default=True
)
@click.option("--layers", default=12, show_default=True)
@click.option(
    "--shapes", default="2x64,4x128,3x77", show_default=True, help="batch x tokens, or sides."
)
@click.option("--repeats", default=5, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--engines", default=",".join(ENGINES), show_default=True)
def main(
    name: str,
    train: bool,
    dtype: str,
    layers: int,
    shapes: str,
    repeats: int,
    threads: int,
    engines: str,
) -> None:
    """Times steps of NAME at its base width with random weights."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    points = [tuple(map(int, shape.split("x"))) for shape in shapes.split(",")]
    module = MODELS[name](layers).train(train).to(getattr(torch, dtype))
    steps = {engine: _step(engine, module, name, train, threads) for engine in engines.split(",")}
    firsts = {engine: [_time(step, *p) for p in points] for engine, step in steps.items()}
    table = Table(title=f"{name}, {dtype}, {'a training step' if train else 'forward'}, ms")
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


def _step(engine: str, module: torch.nn.Module, name: str, train: bool, threads: int) -> Step:
    own = copy.deepcopy(module)
    called: Callable[..., Any] = own
    backend, _, frozen = engine.partition("_")
    if backend != "eager":
        options: dict[str, Any] = {"freezing": True} if frozen else {}
        if backend == "dvm":
            options["cores"] = threads
        called = torch.compile(own, backend=backend, dynamic=True, options=options)

    def inputs(batch: int, size: int) -> dict[str, torch.Tensor]:
        if name in IMAGES:
            return {"pixel_values": torch.rand(batch, 3, size, size, dtype=own.dtype)}
        return {"input_ids": torch.randint(0, 1000, (batch, size))}

    def step(batch: int, size: int) -> None:
        with torch.set_grad_enabled(train):
            result = called(**inputs(batch, size)).last_hidden_state
            if train:
                own.zero_grad()
                result.square().mean().backward()

    return step


def _time(step: Step, batch: int, size: int) -> float:
    started = time.perf_counter()
    step(batch, size)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
