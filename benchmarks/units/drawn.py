"""Operators alone at drawn shapes, against onnxruntime: where a shape falls off a cliff, what is measured at round ones looks fine.

`python -m benchmarks.units.drawn [--seed 1] [--count 500] [--only Transpose] [--below 0.5] [--threads 2] [--rounds 4]`

Extents lie around powers of two and what images, texts and tables have; axes, orders, windows and groups are any. How each
operator does as a whole is shown behind the single cases.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.paired import geometric_mean
from benchmarks.units.cases import Array, Case, Comparison

_FEW = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17)
_MANY = (20, 24, 31, 32, 33, 48, 56, 64, 65, 80, 100, 128, 129, 160, 197, 224, 256, 257, 384, 512)
_CHANNELS = (1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 256, 512)
_LEAST, _MOST = 200, 600_000
"""Elements of an operand: under them starting a kernel is all there is, above them memory is."""
_MULTIPLICATIONS = 300_000_000
"""At most, so that many cases are met."""


class Draw:
    """What shapes and attributes are drawn from."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)

    def shape(self, least: int, most: int) -> tuple[int, ...]:
        """Of a rank in that range."""
        while True:
            rank = self.random.randint(least, most)
            shape = tuple(self.random.choices(_FEW + _MANY, k=rank))
            if _LEAST <= math.prod(shape) <= _MOST:
                return shape

    def image(self) -> tuple[int, int, int, int]:
        while True:
            high, wide = self.random.choices(_FEW[4:] + _MANY, k=2)
            shape = (self.random.choice((1, 1, 1, 2, 4)), self.random.choice(_CHANNELS), high, wide)
            if _LEAST <= math.prod(shape) <= _MOST:
                return shape

    def array(self, *shape: int) -> Array:
        return self._numbers.uniform(0.05, 0.95, shape).astype(np.float32)

    def index(self, limit: int, *shape: int) -> Array:
        return self._numbers.integers(0, limit, shape)

    def axis(self, shape: tuple[int, ...]) -> int:
        return self.random.randrange(len(shape))

    def some(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What broadcasts to a shape."""
        return tuple(extent if self.random.random() < 0.6 else 1 for extent in shape)

    def choice(self, *values: Any) -> Any:
        return self.random.choice(values)


_Family: TypeAlias = Callable[[Draw], Case | None]
_FAMILIES: list[_Family] = []


def _family(function: _Family) -> _Family:
    _FAMILIES.append(function)
    return function


@_family
def transposes(draw: Draw) -> Case:
    shape = draw.shape(2, 6)
    order = draw.random.sample(range(len(shape)), len(shape))
    return Case("Transpose", f"{shape} by {order}", {"x": draw.array(*shape)}, {}, {"perm": order})


@_family
def reductions(draw: Draw) -> Case:
    shape = draw.shape(1, 5)
    axes = sorted(draw.random.sample(range(len(shape)), draw.random.randint(1, len(shape))))
    op = draw.choice("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceLogSumExp")
    return Case(op, f"{shape} along {axes}", {"x": draw.array(*shape)}, {"axes": np.array(axes)})


@_family
def along_an_axis(draw: Draw) -> Case:
    shape = draw.shape(1, 4)
    axis = draw.axis(shape)
    feeds = {"x": draw.array(*shape)}
    op = draw.choice(
        "Softmax", "LogSoftmax", "ArgMax", "CumSum", "TopK", "Gather", "GatherElements"
    )
    name = f"{shape} along {axis}"
    if op == "CumSum":
        return Case(op, name, feeds, {"axis": np.array(axis)})
    attributes = {"axis": axis}
    if op == "TopK":
        k = min(shape[axis], draw.choice(1, 5, 20, 100))
        return Case(op, f"{k} of {name}", feeds, {"k": np.array([k])}, attributes, outputs=2)
    if op == "Gather":
        feeds["i"] = draw.index(shape[axis], draw.choice(1, 5, 17, 64, 200))
    if op == "GatherElements":
        feeds["i"] = draw.index(shape[axis], *shape)
    return Case(op, name, feeds, {}, attributes)


@_family
def norms(draw: Draw) -> Case:
    if draw.random.random() < 0.5:
        image = draw.image()
        parameters = {name: draw.array(image[1]) for name in ("scale", "b")}
        return Case(
            "InstanceNormalization", f"{image}", {"x": draw.array(*image)}, parameters, fixed=[1]
        )
    shape = draw.shape(2, 4)
    parameters = {name: draw.array(shape[-1]) for name in ("scale", "b")}
    fixed = [("x", len(shape) - 1)]
    return Case(
        "LayerNormalization", f"{shape}", {"x": draw.array(*shape)}, parameters, fixed=fixed
    )


@_family
def broadcasts(draw: Draw) -> Case:
    shape = draw.shape(1, 5)
    other = draw.some(shape)
    op = draw.choice("Add", "Sub", "Div", "Max", "Greater", "Where", "Expand")
    feeds = {"x": draw.array(*shape), "y": draw.array(*other)}
    name = f"{shape} and {other}"
    if op == "Where":
        feeds = {"c": feeds["y"] > 0.5, "x": feeds["x"], "y": draw.array(1)}
    if op == "Expand":
        return Case(op, name, {"y": feeds["y"]}, {"shape": np.array(shape)})
    return Case(op, name, feeds)


@_family
def joins(draw: Draw) -> Case:
    shape = draw.shape(1, 4)
    axis = draw.axis(shape)
    x = {"x": draw.array(*shape)}
    op = draw.choice("Concat", "Slice", "Tile")
    if op == "Concat":
        other = (*shape[:axis], draw.choice(*_FEW), *shape[axis + 1 :])
        name = f"{shape} and {other} along {axis}"
        return Case(op, name, {**x, "y": draw.array(*other)}, {}, {"axis": axis})
    if op == "Tile":
        times = [draw.choice(1, 1, 2, 3, 7) for _ in shape]
        if math.prod(shape) * math.prod(times) > _MOST:
            times = [1] * (len(shape) - 1) + [2]
        return Case(op, f"{shape} {times} times", x, {"times": np.array(times)})
    step = draw.choice(1, 1, 2, 3)
    parts = {
        "s": np.array([1]),
        "e": np.array([shape[axis]]),
        "a": np.array([axis]),
        "t": np.array([step]),
    }
    return Case(op, f"{shape} along {axis} by {step}", x, parts)


@_family
def pads(draw: Draw) -> Case:
    shape = draw.shape(1, 4)
    mode = draw.choice("constant", "reflect", "edge") if min(shape) > 3 else "constant"
    pads = [draw.choice(0, 1, 2) for _ in range(2 * len(shape))]
    return Case(
        "Pad",
        f"{shape} {mode} {pads}",
        {"x": draw.array(*shape)},
        {"p": np.array(pads)},
        {"mode": mode},
    )


@_family
def products(draw: Draw) -> Case | None:
    m, n, k = draw.random.choices(_FEW + _MANY, k=3)
    batch = (draw.choice(1, 2, 4, 12),) if draw.random.random() < 0.5 else ()
    if m * n * k * math.prod(batch) > _MULTIPLICATIONS:
        return None
    a = {"a": draw.array(*batch, m, k)}
    name = f"{batch} {m} x {k} x {n}"
    if draw.random.random() < 0.5:
        return Case(
            "MatMul", f"{name}, constant", a, {"b": draw.array(k, n)}, fixed=[len(batch) + 1]
        )
    return Case("MatMul", name, {**a, "b": draw.array(*batch, k, n)})


@_family
def convolutions(draw: Draw) -> Case | None:
    x = draw.image()
    kernel, stride, dilation = (
        draw.choice(1, 1, 3, 3, 5, 7),
        draw.choice(1, 1, 2),
        draw.choice(1, 1, 1, 2),
    )
    group = draw.choice(1, 1, x[1], 2, 4)
    results = draw.choice(1, 2, 4, 8, 16, 32)
    around = (kernel - 1) * dilation
    multiplications = math.prod(x) * results * kernel * kernel
    if x[1] % group != 0 or around >= min(x[2:]) or multiplications > _MULTIPLICATIONS:
        return None
    weights = {
        "w": draw.array(group * results, x[1] // group, kernel, kernel),
        "b": draw.array(group * results),
    }
    attributes = {
        "group": group,
        "pads": [around // 2] * 4,
        "strides": [stride] * 2,
        "dilations": [dilation] * 2,
    }
    name = f"{x} to {group * results}, {kernel} by {stride}, {dilation} apart, {group} groups"
    return Case("Conv", name, {"x": draw.array(*x)}, weights, attributes, fixed=[1])


@_family
def transposed_convolutions(draw: Draw) -> Case | None:
    x = draw.image()
    kernel, stride, results = (
        draw.choice(2, 3, 4),
        draw.choice(1, 2, 2),
        draw.choice(1, 2, 3, 8, 16, 32),
    )
    if math.prod(x) * results * kernel * kernel > _MULTIPLICATIONS // 4:
        return None
    weights = {"w": draw.array(x[1], results, kernel, kernel)}
    name = f"{x} to {results}, {kernel} by {stride}"
    return Case(
        "ConvTranspose", name, {"x": draw.array(*x)}, weights, {"strides": [stride] * 2}, fixed=[1]
    )


@_family
def pools(draw: Draw) -> Case:
    x = draw.image()
    op = draw.choice("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    kernel, stride = draw.choice(2, 3, 5), draw.choice(1, 2)
    attributes: dict[str, Any] = {}
    if not op.startswith("Global"):
        pads = [kernel // 2] * 4 if kernel > 2 else [0] * 4
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
    return Case(op, f"{x}, {kernel} by {stride}", {"x": draw.array(*x)}, {}, attributes, fixed=[1])


@_family
def resizes(draw: Draw) -> Case:
    x = draw.image()
    mode, scale = draw.choice("nearest", "linear", "cubic"), draw.choice(0.5, 0.75, 1.5, 2.0)
    scales = {"s": np.array((1, 1, scale, scale), np.float32)}
    name = f"{mode} {scale} of {x}"
    return Case(
        "Resize",
        name,
        {"x": draw.array(*x)},
        scales,
        {"mode": mode},
        fixed=[1],
        operands=["x", "", "s"],
    )


def cases(seed: int, only: str) -> Iterator[tuple[str, Case]]:
    """Without end."""
    draw = Draw(seed)
    wanted = only.lower().split(",")
    for family in itertools.cycle(_FAMILIES):
        case = family(draw)
        if case is not None and any(part in case.op.lower() for part in wanted):
            yield f"{case.op} {case.name}", case


def _show_operators(found: list[tuple[float, str, float]]) -> None:
    ratios = defaultdict(list)
    for ratio, name, _ in found:
        ratios[name.split()[0]].append(ratio)
    table = Table(title="onnxruntime's time over ours, operator by operator")
    for heading in ("operator", "cases", "geometric mean", "least", "under 0.9"):
        table.add_column(heading)
    for op, each in sorted(ratios.items(), key=lambda item: geometric_mean(item[1])):
        under = sum(ratio < 0.9 for ratio in each)
        table.add_row(
            op, f"{len(each)}", f"{geometric_mean(each):.2f}", f"{min(each):.2f}", f"{under}"
        )
    Console(width=120).print(table)


@click.command()
@click.option("--seed", default=1, show_default=True)
@click.option("--count", default=500, show_default=True)
@click.option(
    "--only", default="", help="operators whose names have one of these, with commas between"
)
@click.option("--below", default=0.5, show_default=True, help="lists cases under this ratio")
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=4, show_default=True)
def main(seed: int, count: int, only: str, below: float, threads: int, rounds: int) -> None:
    """Onnxruntime's time over ours."""
    comparison = Comparison(threads, rounds)
    comparison.take(itertools.islice(cases(seed, only), count))
    comparison.show(below)
    _show_operators(comparison.found)


if __name__ == "__main__":
    main()
