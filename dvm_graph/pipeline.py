"""READ FIRST: the compiler as one straight function.

In: an ONNX model (path, bytes or ModelProto). Out: a `Compiled`: the shape-generic plan of the model
and the record of every fusion decision. Nothing here depends on concrete shapes; those meet the
plan in C++ at each run (`runtime/`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from dvm_graph.cluster import FusionReport, Schedule, cluster, split_clusters, stack
from dvm_graph.cluster.text import print_clusters, print_schedule, print_subgraphs
from dvm_graph.decompose import decompose
from dvm_graph.errors import InputError, StrictError, border, writing
from dvm_graph.import_ import compute_vendor, import_onnx
from dvm_graph.ir import Graph
from dvm_graph.ir.printer import print_graph
from dvm_graph.ir.verify import Dialect, verify
from dvm_graph.kernels.lower import lower_kernels
from dvm_graph.kernels.plan import ModelPlan
from dvm_graph.kernels.text import print_plan
from dvm_graph.kernels.verify import verify_plan
from dvm_graph.options import Options
from dvm_graph.passes import (
    absorb_views,
    collect_scales,
    copy_widened,
    eliminate_common,
    eliminate_dead,
    fill_branches,
    fold_constants,
    fold_scales,
    join_lookups,
    lift_invariants,
    simplify,
    sink_concats,
    sink_divisions,
    sink_transposes,
    tabulate,
    turn_products,
)
from dvm_graph.symbolic import Facts, Meter, Symbols

Source = str | PathLike[str] | bytes | Any
"""A path, the bytes of a model, or an onnx.ModelProto."""

PASSES = (
    *("fold_constants", "lift_invariants", "fill_branches", "turn_products", "sink_transposes"),
    *("simplify", "fold_scales", "collect_scales", "sink_divisions", "sink_concats", "tabulate"),
    *("absorb_views", "eliminate_common", "copy_widened", "join_lookups"),
    "eliminate_dead",
)
"""The passes over basic operators, in order; `Options.disable_passes` can leave them out."""

STAGES = (
    *("import_onnx", "decompose"),
    *PASSES,
    *("cluster", "split_clusters", "stack", "lower_kernels"),
)
"""Everything that has a text form, in order."""


@dataclass(frozen=True, slots=True)
class Done:
    """A stage that is done."""

    name: str
    """One of `STAGES`."""
    result: Any
    """What it made: a graph up to the passes, which change it in place."""
    facts: Facts
    text: Callable[[], str]


Observer = Callable[[Done], None]
"""Sees each stage that is done. What it raises ends the compilation."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler knows about a model once it is done with it."""

    graph: Graph
    plan: ModelPlan
    schedule: Schedule
    """What `plan` was lowered from, step by step."""
    facts: Facts
    rescued: tuple[str, ...] = ()
    """What could not be compiled and runs on onnxruntime instead, and why (`rescue.py`)."""
    bodies: Mapping[Graph, Compiled] = field(default_factory=dict)
    """The bodies of control flow in the graph, each with those inside."""

    @property
    def report(self) -> FusionReport:
        return self.schedule.report


def compile_model(source: Source, options: Options, observe: Observer | None = None) -> Compiled:
    """Compiles a model, one named pass a line.

    Raises:
        InputError: `options` name a pass that does not exist.
        ModelError: the file is not a valid ONNX model.
        UnsupportedError: an operator neither dvm_graph nor onnxruntime can run.
        StrictError: `options.strict`, and vendor operators would be needed.
        LimitError: it takes longer, or more memory, than the options allow.
        CompileError: the plan breaks its contract: a defect of the compiler.
    """
    facts = Facts(Symbols(), Meter(options))
    stages = _StageLog(options, facts, observe)

    imported = stages.done("import_onnx", import_onnx(source, options, facts.symbols), print_graph)
    verify(imported, Dialect.ONNX)

    graph = stages.done("decompose", decompose(imported, facts, options), print_graph)
    parts = (graph, *_bodies(graph))
    imported.clear({region for part in parts for node in part.nodes for region in node.regions})
    return _optimise(graph, facts, options, stages)


def compile_graph(graph: Graph, facts: Facts, options: Options) -> Compiled:
    """As `compile_model`, of a graph of basic operators."""
    return _optimise(graph, facts, options, _StageLog(options, facts, None))


def compile_whole(graph: Graph, options: Options) -> Compiled:
    """As `compile_model`, of a graph that one vendor operator is (`import_whole`)."""
    facts = Facts(Symbols())
    return _fuse_and_lower(graph, facts, options, _StageLog(options, facts, None))


def _optimise(graph: Graph, facts: Facts, options: Options, stages: _StageLog) -> Compiled:
    _simplify(graph, facts, options, stages)
    verify(graph, Dialect.BASIC)
    if options.strict:
        _refuse_vendor_operators(graph)

    return _fuse_and_lower(graph, facts, options, stages)


def _simplify(graph: Graph, facts: Facts, options: Options, stages: _StageLog) -> None:
    most = options.limits.max_operators
    stages.run("fold_constants", graph, lambda: fold_constants(graph, compute_vendor))
    stages.run("lift_invariants", graph, lambda: lift_invariants(graph, facts))
    stages.run("fill_branches", graph, lambda: fill_branches(graph, facts, most))
    for node in graph.sorted_nodes():
        for body in node.bodies:  # of control flow: programs of their own, on the same way
            _simplify(body, facts.bodies[body], options, stages.of_body())
    stages.run("turn_products", graph, lambda: turn_products(graph, facts))
    stages.run("sink_transposes", graph, lambda: sink_transposes(graph, facts))
    stages.run("simplify", graph, lambda: simplify(graph, facts))
    stages.run("fold_scales", graph, lambda: fold_scales(graph, facts))
    stages.run("collect_scales", graph, lambda: collect_scales(graph, facts))
    stages.run("sink_divisions", graph, lambda: sink_divisions(graph, facts))
    stages.run("sink_concats", graph, lambda: sink_concats(graph, facts))
    if not options.device:  # an instruction of the host's
        stages.run("tabulate", graph, lambda: tabulate(graph, facts))
    stages.run("absorb_views", graph, lambda: absorb_views(graph, facts))
    stages.run("eliminate_common", graph, lambda: eliminate_common(graph))
    stages.run("copy_widened", graph, lambda: copy_widened(graph))
    stages.run("join_lookups", graph, lambda: join_lookups(graph))
    stages.run("eliminate_dead", graph, lambda: eliminate_dead(graph))


def _bodies(graph: Graph) -> Iterator[Graph]:
    """The bodies of control flow, those inside first."""
    for node in graph.sorted_nodes():
        for body in node.bodies:
            yield from _bodies(body)
            yield body


def _fuse_and_lower(graph: Graph, facts: Facts, options: Options, stages: _StageLog) -> Compiled:
    bodies = {
        body: _fuse_and_lower(body, facts.bodies[body], options, stages.of_body())
        for node in graph.sorted_nodes()
        for body in node.bodies
    }
    clusters = stages.done("cluster", cluster(graph), print_clusters)
    subgraphs = stages.done(
        "split_clusters", split_clusters(clusters, facts, options), print_subgraphs
    )
    schedule = stages.done("stack", stack(subgraphs, options), print_schedule)
    plans = {body: compiled.plan for body, compiled in bodies.items()}
    plan = stages.done("lower_kernels", lower_kernels(schedule, facts, options, plans), print_plan)
    verify_plan(plan, facts, most_samples=1)
    return Compiled(graph, plan, schedule, facts, bodies=bodies)


def stage_text(source: Source, options: Options, stage: str) -> str:
    """The text form of what one of `STAGES` makes of a model; later ones do not run.

    Raises:
        InputError: there is no such stage, or `options` disable it.
        What `compile_model` raises.
    """

    def stop(done: Done) -> None:
        if done.name == stage:
            raise _Stopped(done.text())

    with border("compile the model"):
        try:
            compile_model(source, options, stop)
        except _Stopped as stopped:
            return stopped.text
    raise InputError(f"no stage named {stage!r} ran; stages are {', '.join(STAGES)}")


class _Stopped(Exception):  # noqa: N818 - it is no error
    """Ends a compilation behind the stage that was asked for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


def _refuse_vendor_operators(graph: Graph) -> None:
    graphs = (graph, *_bodies(graph))
    vendor = [node for part in graphs for node in part.nodes if node.op == "vendor"]
    if vendor:
        names = ", ".join(f"{node.attrs['op']} ({', '.join(node.origin)})" for node in vendor[:5])
        raise StrictError(
            f"strict=True, but {len(vendor)} operators would run on the vendor library: {names}"
            f"{', ...' if len(vendor) > 5 else ''}; drop strict=True to allow them"
        )


class _StageLog:
    """Runs passes that are not disabled; tells the observer, and a dump folder if there is one."""

    def __init__(self, options: Options, facts: Facts, observe: Observer | None) -> None:
        self._facts = facts
        unknown = sorted(options.disable_passes - set(PASSES))
        if unknown:
            raise InputError(f"no pass named {unknown[0]!r}; passes are {', '.join(PASSES)}")
        self._disabled = options.disable_passes
        self._observers: list[Observer] = []
        folder = options.dump or os.environ.get("DVM_DUMP", "")
        if folder:
            self._observers.append(_dump_to(Path("dvm_dump" if folder == "all" else folder)))
        if observe is not None:  # the last: it may end the compilation
            self._observers.append(observe)

    def of_body(self) -> _StageLog:
        """For a body of control flow, which is no stage of its own: the text forms around it show it."""
        log = copy(self)
        log._observers = []
        return log

    def run(self, name: str, graph: Graph, transform: Callable[[], bool]) -> None:
        if name not in self._disabled:
            transform()
            self.done(name, graph, print_graph)

    def done(self, name: str, result: _T, text: Callable[[_T], str]) -> _T:
        self._facts.meter.look()
        for observe in self._observers:
            observe(Done(name, result, self._facts, lambda: text(result)))
        return result


def _dump_to(folder: Path) -> Observer:
    """Writes `NN-stage.txt` for each stage, numbered as in `STAGES`."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)

    def dump(done: Done) -> None:
        path = folder / f"{STAGES.index(done.name):02d}-{done.name}.txt"
        with writing(path):
            path.write_text(done.text(), encoding="utf-8")

    return dump
