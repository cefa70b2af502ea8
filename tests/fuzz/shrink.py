"""Makes a failing case small: delta debugging over outputs, nodes, attributes, extents and contents.

Every candidate is checked in a child process, as the case was, and kept where the same kind of finding
comes out. A node is cut off by making its results inputs, which hold what onnxruntime computes for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dvm_graph import Options
from tests.fuzz.case import Case, Feeds, prune, prune_nodes
from tests.fuzz.check import Finding, Kind, Phase, Report, check
from tests.fuzz.judge import Reference
from tests.fuzz.workers import run

Variants = tuple[tuple[str, Options], ...]


def shrink(
    case: Case, finding: Finding, variants: Variants, seconds: float = 120
) -> tuple[Case, Finding]:
    """The smallest case found that fails as this one does, and its finding."""
    used = tuple(v for v in variants if v[0] == finding.variant)
    shrinker = _Shrinker(case, finding, used, seconds)
    shrinker.run()
    return shrinker.case, shrinker.finding


class _Shrinker:
    def __init__(self, case: Case, finding: Finding, variants: Variants, seconds: float) -> None:
        self.case, self.finding = case, finding
        self._variants = variants
        self._end = time.monotonic() + seconds

    def run(self) -> None:
        self._try(replace(self.case, feeds=(self.case.feeds[self.finding.environment],)))
        progress = True
        while progress and time.monotonic() < self._end:
            progress = sum(self._pass(candidates) for candidates in _PASSES) > 0

    def _pass(self, candidates: Callable[[Case], Iterator[Case]]) -> bool:
        """Whether something could be left out; starts anew behind every success."""
        progress = False
        again = True
        while again and time.monotonic() < self._end:
            again = False
            for candidate in candidates(self.case):
                if self._try(candidate):
                    progress = again = True
                    break
                if time.monotonic() > self._end:
                    break
        return progress

    def _try(self, candidate: Case) -> bool:
        def work(item: Case, phase: Callable[[Phase], None]) -> Report:
            return check(item, self._variants, phase)

        for _, report in run([[candidate]], work):
            if isinstance(report, Finding) and _alike(report, self.finding):
                self.case, self.finding = candidate, report
                return True
        return False


def _alike(one: Finding, other: Finding) -> bool:
    if one.kind is not other.kind:
        return False
    if one.kind in (Kind.REFUSED, Kind.FOREIGN):
        return _words(one.message) == _words(other.message)
    return True


def _words(message: str) -> list[str]:
    """The words of a message that name nothing of the model."""
    return [word for word in message.split() if word.isalpha()][:8]


def _edited(
    case: Case, edit: Callable[[onnx.GraphProto], None], feeds: Feeds | None = None
) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    edit(model.graph)
    prune(model.graph)
    kept = {value.name for value in model.graph.input}
    given = feeds if feeds is not None else case.feeds[0]
    if feeds is None and len(case.feeds) > 1:
        return replace(
            case, model=model, feeds=tuple({k: f[k] for k in f if k in kept} for f in case.feeds)
        )
    return replace(case, model=model, feeds=({k: v for k, v in given.items() if k in kept},))


def _fewer_outputs(case: Case) -> Iterator[Case]:
    outputs = list(case.model.graph.output)
    for value in outputs if len(outputs) > 1 else ():

        def edit(graph: onnx.GraphProto, value: Any = value) -> None:
            del graph.output[:]
            graph.output.append(value)

        yield _edited(case, edit)
    for drop in range(len(outputs)) if len(outputs) > 1 else ():

        def leave(graph: onnx.GraphProto, drop: int = drop) -> None:
            del graph.output[drop]

        yield _edited(case, leave)


def _earlier_outputs(case: Case) -> Iterator[Case]:
    shown = {value.name for value in case.model.graph.output}
    for node in case.model.graph.node:
        for name in node.output:
            if not name or name in shown:
                continue

            def edit(graph: onnx.GraphProto, name: str = name) -> None:
                del graph.output[:]
                graph.output.append(onnx.ValueInfoProto(name=name))

            yield _edited(case, edit)


def _cut_nodes(case: Case) -> Iterator[Case]:
    """Results of nodes as inputs, those of the last nodes first."""
    try:
        values = _intermediate(case)
    except Exception:
        return
    shown = {value.name for value in case.model.graph.output}
    for node in reversed(case.model.graph.node):
        names = [name for name in node.output if name]
        if shown & set(names) or not all(
            isinstance(values.get(name), np.ndarray) for name in names
        ):
            continue

        def edit(graph: onnx.GraphProto, names: list[str] = names) -> None:
            left = [n for n in graph.node if not set(names) & set(n.output)]
            copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in left]
            del graph.node[:]
            graph.node.extend(copies)
            for name in names:
                kind = helper.np_dtype_to_tensor_dtype(values[name].dtype)
                info = helper.make_tensor_value_info(name, kind, [None] * values[name].ndim)
                graph.input.append(info)

        yield _edited(case, edit, {**case.feeds[0], **{name: values[name] for name in names}})


def _intermediate(case: Case) -> dict[str, Any]:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    names = [name for node in model.graph.node for name in node.output if name]
    typed = onnx.shape_inference.infer_shapes(model)
    types = {v.name: v for v in (*typed.graph.value_info, *typed.graph.output)}
    del model.graph.output[:]
    names = [name for name in names if name in types]
    model.graph.output.extend(types[name] for name in names)
    return dict(zip(names, Reference(model).run(case.feeds[0]), strict=True))


def _bypass_nodes(case: Case) -> Iterator[Case]:
    """Readers of a node's result read one of its operands."""
    for place in range(len(case.model.graph.node)):
        for operand in dict.fromkeys(case.model.graph.node[place].input):
            if not operand:
                continue

            def edit(graph: onnx.GraphProto, place: int = place, operand: str = operand) -> None:
                name = graph.node[place].output[0]
                for node in graph.node:
                    for index, read in enumerate(node.input):
                        if read == name:
                            node.input[index] = operand

            edited = _edited(case, edit)
            if len(edited.model.graph.node) < len(case.model.graph.node):
                yield edited


def _fewer_attributes(case: Case) -> Iterator[Case]:
    for place, node in enumerate(case.model.graph.node):
        for index in range(len(node.attribute)):

            def edit(graph: onnx.GraphProto, place: int = place, index: int = index) -> None:
                del graph.node[place].attribute[index]

            yield _edited(case, edit)
        for index, name in enumerate(node.input):
            if not name or (index == 0):
                continue

            def leave(graph: onnx.GraphProto, place: int = place, index: int = index) -> None:
                inputs = graph.node[place].input
                inputs[index] = ""
                while inputs and not inputs[-1]:
                    inputs.pop()

            yield _edited(case, leave)


def _smaller_bodies(case: Case) -> Iterator[Case]:
    """Bodies of regions without what no result of theirs depends on."""

    def edit(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    prune_nodes(attribute.g)

    edited = _edited(case, edit)
    if edited.data != case.data:
        yield edited


def _smaller_extents(case: Case) -> Iterator[Case]:
    """Every axis of some extent shorter, in inputs and constants alike."""
    graph = case.model.graph
    feeds = case.feeds[0]
    arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    extents = {n for a in (*arrays.values(), *feeds.values()) for n in a.shape if n > 1}
    for extent in sorted(extents, reverse=True):
        for smaller in dict.fromkeys((1, 2, extent // 2, extent - 1)):
            if 0 < smaller < extent:
                yield _sliced(case, extent, smaller, arrays)


def _sliced(case: Case, extent: int, smaller: int, arrays: dict[str, Any]) -> Case:
    def part(array: Any) -> Any:
        cuts = (slice(0, smaller if n == extent else n) for n in array.shape)
        left = array[(*cuts, ...)]  # an array even of one string
        return np.ascontiguousarray(left).reshape(left.shape)

    def edit(graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            array = arrays[tensor.name]
            if array.dtype != np.int64:
                tensor.CopyFrom(numpy_helper.from_array(part(array), tensor.name))
        for value in graph.input:
            for dim in value.type.tensor_type.shape.dim:
                if dim.HasField("dim_value") and dim.dim_value == extent:
                    dim.dim_value = smaller

    return _edited(case, edit, {name: part(array) for name, array in case.feeds[0].items()})


def _plainer(case: Case) -> Iterator[Case]:
    """Inputs of small integers, and dims without names."""
    for name, array in case.feeds[0].items():
        if array.dtype.kind == "f" and array.size:
            plain = (np.arange(array.size) % 7 - 3).reshape(array.shape).astype(array.dtype)
            if not np.array_equal(plain, array):
                yield replace(case, feeds=({**case.feeds[0], name: plain},))


_PASSES = (
    *(_fewer_outputs, _earlier_outputs, _cut_nodes, _bypass_nodes),
    *(_fewer_attributes, _smaller_bodies, _smaller_extents, _plainer),
)
