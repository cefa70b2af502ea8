"""READ FIRST: the compiler as one straight function.

In: an ONNX model (path, bytes or ModelProto). Out: a `Compiled`: the shape-generic plan of the model
and the record of every fusion decision. Nothing here depends on concrete shapes; those meet the
plan in C++ at each run (`runtime/`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from dvm_graph.cluster import FusionReport, Schedule, cluster, split_clusters, stack
from dvm_graph.decompose import decompose
from dvm_graph.errors import StrictError
from dvm_graph.import_ import import_onnx
from dvm_graph.ir import Graph
from dvm_graph.ir.printer import print_graph
from dvm_graph.ir.verify import Stage, verify
from dvm_graph.kernels.lower import lower_kernels
from dvm_graph.kernels.plan import ModelPlan
from dvm_graph.options import Options
from dvm_graph.passes import (
    absorb_views,
    eliminate_common,
    eliminate_dead,
    fold_constants,
    simplify,
)
from dvm_graph.symbolic import Facts, Symbols

Source = str | PathLike[str] | bytes | Any
"""A path, the bytes of a model, or an onnx.ModelProto."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler knows about a model once it is done with it."""

    graph: Graph
    plan: ModelPlan
    schedule: Schedule
    """What `plan` was lowered from, step by step."""

    @property
    def report(self) -> FusionReport:
        return self.schedule.report


def compile_model(source: Source, options: Options) -> Compiled:
    """Compiles a model, one named pass a line.

    Raises:
        ModelError: the file is not a valid ONNX model.
        UnsupportedError: an operator neither dvm_graph nor onnxruntime can run.
        StrictError: `options.strict`, and vendor operators would be needed.
    """
    facts = Facts(Symbols())
    stages = _StageLog(options)

    graph = stages.done("import_onnx", import_onnx(source, options, facts.symbols))
    verify(graph, Stage.IMPORTED)

    graph = stages.done("decompose", decompose(graph, facts, options))
    if options.strict:
        _refuse_vendor_operators(graph)

    stages.run("fold_constants", graph, lambda: fold_constants(graph, facts))
    stages.run("simplify", graph, lambda: simplify(graph, facts))
    stages.run("absorb_views", graph, lambda: absorb_views(graph, facts))
    stages.run("eliminate_common", graph, lambda: eliminate_common(graph))
    stages.run("eliminate_dead", graph, lambda: eliminate_dead(graph))
    verify(graph, Stage.BASIC)

    clusters = cluster(graph, facts, options)
    subgraphs = split_clusters(clusters, facts, options)
    schedule = stack(subgraphs, facts, options)
    plan = lower_kernels(schedule, facts, options)
    return Compiled(graph, plan, schedule)


def _refuse_vendor_operators(graph: Graph) -> None:
    vendor = [node for node in graph.nodes if node.op == "vendor"]
    if vendor:
        names = ", ".join(f"{node.attrs['op']} ({', '.join(node.origin)})" for node in vendor[:5])
        raise StrictError(
            f"strict=True, but {len(vendor)} operators would run on the vendor library: {names}"
            f"{', ...' if len(vendor) > 5 else ''}; drop strict=True to allow them"
        )


class _StageLog:
    """Runs passes that are not disabled and dumps the graph after each stage when asked to."""

    def __init__(self, options: Options) -> None:
        folder = options.dump or os.environ.get("DVM_DUMP", "")
        self._folder = Path("dvm_dump" if folder == "all" else folder) if folder else None
        self._disabled = options.disable_passes
        self._count = 0

    def run(self, name: str, graph: Graph, transform: Callable[[], bool]) -> None:
        if name not in self._disabled:
            transform()
            self.done(name, graph)

    def done(self, name: str, graph: Graph) -> Graph:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{self._count:02d}-{name}.txt"
            path.write_text(print_graph(graph))
        self._count += 1
        return graph
