"""Plots as in the paper: speed-up at every sampled instance with average lines. SVG, functions of the rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.paired import engines, geometric_mean, of_workload, pairs, workloads
from benchmarks.rows import Row
from benchmarks.stream import StreamMemory, StreamRow
from benchmarks.tables import floor_ms, title
from benchmarks.turns import SUBJECT

_COLORS = {
    "dvm_graph": "tab:red",
    "dvm_graph_earlier": "tab:cyan",
    "dvm_graph_direct": "tab:cyan",
    "dvm_graph_bf16": "tab:pink",
    "onnxruntime": "tab:blue",
    "openvino": "tab:green",
    "openvino_bf16": "tab:olive",
    "torch": "tab:gray",
    "inductor_dynamic": "tab:orange",
    "inductor_static": "tab:brown",
    "inductor_branches": "tab:brown",
    "mindspore": "tab:purple",
}


def plot_dataset(rows: Sequence[Row], name: str, base: str, path: Path) -> None:
    """Speed-up of every engine over `base` at each instance, by rising work; dashed lines are geometric means."""
    from matplotlib.figure import Figure

    chosen = of_workload(rows, name)
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for engine in engines(chosen):
        found = sorted(
            pairs(chosen, base, subject=engine), key=lambda pair: pair.peer.flops or pair.peer.bytes
        )
        if engine == base or not found:
            continue
        color = _COLORS[engine]
        work = [(pair.peer.flops or pair.peer.bytes) / 1e6 for pair in found]
        speedups = [pair.speedup for pair in found]
        axes.plot(
            work, speedups, "o-", color=color, markersize=3, linewidth=0.7, label=title(engine)
        )
        axes.axhline(geometric_mean(speedups), color=color, linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("MFLOP" if chosen and chosen[0].flops else "MB read and written")
    axes.set_ylabel(f"speed-up over {title(base)}")
    axes.set_title(name)
    axes.legend(fontsize=7)
    _save(figure, path)


def plot_models(rows: Sequence[Row], path: Path) -> None:
    """Geometric mean of dvm_graph's speed-up over every engine, a group of bars for each model."""
    from matplotlib.figure import Figure

    names, peers = workloads(rows), [name for name in engines(rows) if name != SUBJECT]
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / max(1, len(peers))
    for place, peer in enumerate(peers):
        means = [
            geometric_mean(p.speedup for p in pairs(of_workload(rows, n), peer)) for n in names
        ]
        at = [index + place * width for index in range(len(names))]
        axes.bar(at, means, width, color=_COLORS[peer], label=title(peer))
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks([index + 0.4 - width / 2 for index in range(len(names))], names, rotation=20)
    axes.set_ylabel("speed-up of dvm_graph")
    axes.legend(fontsize=7)
    _save(figure, path)


def plot_stream(rows: Sequence[StreamRow], memories: Sequence[StreamMemory], path: Path) -> None:
    """Time over the floor of each shape, sorted: where a curve turns up is its tail."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for memory in memories:
        ratios = sorted(row.first_ms / floor_ms(row) for row in rows if row.engine == memory.engine)
        if ratios:
            share = [100 * (index + 1) / len(ratios) for index in range(len(ratios))]
            axes.plot(share, ratios, color=_COLORS[memory.engine], label=title(memory.engine))
    axes.set_xlabel("percentile of the shapes")
    axes.set_ylabel("time over the floor")
    axes.legend(fontsize=7)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    """The same rows give the same file."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, metadata={"Date": None})
