"""A case: a random model, and feeds for each environment in which it may run."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import networkx as nx
import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.fuzz import operators
from tests.fuzz.contents import draw
from tests.fuzz.growth import DTYPES, EXTENTS, SYMBOLS, Growth, RefusedError, Value, names_read
from tests.fuzz.registry import (
    CONTRIB,
    ELEMENTWISE,
    GATHER,
    OTHER,
    PRODUCT,
    REDUCTION,
    REGION,
    SEQUENCE,
    TEXT,
    VIEW,
    WINDOW,
)

Array: TypeAlias = np.ndarray[Any, Any]
Feeds: TypeAlias = "dict[str, Array]"

OPSETS = range(7, 29)
BREADTH = 3
F32, STRING = TensorProto.FLOAT, TensorProto.STRING


@dataclass(frozen=True)
class Case:
    model: onnx.ModelProto
    feeds: tuple[Feeds, ...]
    """One for each environment; the first is always meant to run."""
    special: bool = False

    @functools.cached_property
    def data(self) -> bytes:
        return self.model.SerializeToString()

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(sorted({node.op_type for node in self.model.graph.node}))

    @property
    def text(self) -> str:
        return str(onnx.printer.to_text(self.model))


def case_of(text: str, **feeds: Array) -> Case:
    """Of a graph as text, at opset 21."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    return Case(model, (feeds,))


KINDS = (ELEMENTWISE, PRODUCT, REDUCTION, WINDOW, GATHER, VIEW, OTHER)
KINDS = (*KINDS, REGION, SEQUENCE, TEXT, CONTRIB)
WEIGHTS = (6, 4, 4, 2, 1, 4, 2, 0.6, 0.8, 0.4, 0.6)


@dataclass(frozen=True, slots=True)
class Favour:
    """What graphs have more of than they would."""

    kind: str | None = None
    opset: int | None = None
    operator: str | None = None


def generate(seed: int, index: int, favour: Favour = Favour()) -> Case:
    """The case of this number: nothing else decides what it is."""
    rng = random.Random(f"{seed}:{index}")
    drawn = _opset(rng)
    g = Growth(
        rng, favour.opset or drawn, environments(rng), _dtypes(rng), special=rng.random() < 0.08
    )
    wide = rng.random() < 0.35  # any operator, rather than kinds in proportion
    nodes = rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8, 12))
    tries = 0
    while len(g.nodes) < nodes and tries < 6 * nodes:
        tries += 1
        before = len(g.nodes)
        kind = None if wide and rng.random() < 0.6 else rng.choices(KINDS, WEIGHTS)[0]
        if favour.kind and rng.random() < 0.5:
            kind = favour.kind
        try:
            if favour.operator and rng.random() < 0.5:
                operators.draw(g, favour.operator)
            else:
                operators.grow(g, kind)
        except RefusedError:
            _forget(g, before)
    if not g.nodes:
        x = g.fresh(F32)
        g.emit("Neg", [x])
    return _case(g)


def _opset(rng: random.Random) -> int:
    return rng.choice(
        (
            7,
            8,
            9,
            10,
            11,
            12,
            13,
            13,
            14,
            15,
            16,
            17,
            17,
            18,
            18,
            19,
            20,
            21,
            21,
            22,
            23,
            24,
            25,
            26,
            27,
            28,
        )
    )


def environments(rng: random.Random) -> tuple[dict[str, int], ...]:
    return tuple({symbol: rng.choice(EXTENTS) for symbol in SYMBOLS} for _ in range(BREADTH))


def _dtypes(rng: random.Random) -> tuple[int, ...]:
    if rng.random() < 0.6:
        return (F32,)
    return tuple(rng.choice(DTYPES) for _ in range(rng.choice((1, 2))))


def _forget(g: Growth, before: int) -> None:
    """Takes back the nodes of a recipe that was refused half way."""
    made = {name for node in g.nodes[before:] for name in node.output}
    del g.nodes[before:]
    g.values = [value for value in g.values if value.name not in made]


def _case(g: Growth) -> Case:
    read = {name for node in g.nodes for name in names_read(node)}
    made = [name for node in g.nodes for name in node.output if name]
    known = {value.name: value for value in g.values if value.dtype in (*DTYPES, STRING)}
    results = [n for n in made if n in known and (n not in read or g.chance(0.25))]
    results = results or [n for n in made if n in known][-1:]
    if len(results) > 1 and g.chance(0.2):
        g.rng.shuffle(results)
    inputs = [item for name, item in g.inputs.items() if name in read]
    constants = [tensor for name, tensor in g.constants.items() if name in read]
    graph = helper.make_graph(
        g.nodes,
        "random",
        [helper.make_tensor_value_info(i.value.name, i.value.dtype, i.declared) for i in inputs],
        [_output(g, known[name]) for name in results],
        constants,
    )
    # The types of what onnx does not know.
    graph.value_info.extend(
        helper.make_tensor_value_info(name, known[name].dtype, None)
        for node in g.nodes
        if node.domain
        for name in node.output
        if name in known and name not in results
    )
    ir_version = 8 if g.opset < 19 else 10 if g.opset < 24 else 11
    versions = {"": g.opset, **{node.domain: 1 for node in nodes_of(graph) if node.domain}}
    imports = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    model = helper.make_model(graph, ir_version=ir_version, opset_imports=imports)
    seed = g.numpy_seed()
    feeds = tuple(
        {
            item.value.name: draw(
                seed + number, item.value.dtype, item.value.shapes[e] or (), item.contents, e
            )
            for number, item in enumerate(inputs)
        }
        for e in range(g.breadth)
        if e not in g.dead
    )
    return Case(model, feeds, g.special)


def _output(g: Growth, value: Value) -> onnx.ValueInfoProto:
    """Without a shape, or with the extents that are the same everywhere."""
    if g.chance(0.7) or not value.known:
        return helper.make_tensor_value_info(value.name, value.dtype, None)
    dims = [value.at(axis)[0] if value.fixed(axis) else None for axis in range(value.rank)]
    if g.dead:
        dims = [None] * len(dims)
    return helper.make_tensor_value_info(value.name, value.dtype, dims)


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of regions too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes_of(attribute.g)


def prune(graph: onnx.GraphProto) -> None:
    """Leaves out what no output depends on."""
    needed = prune_nodes(graph)
    for field in (graph.input, graph.initializer):
        left = [item for item in field if item.name in needed]
        copies = [type(item).FromString(item.SerializeToString()) for item in left]
        del field[:]
        field.extend(copies)


def prune_nodes(graph: onnx.GraphProto) -> set[str]:
    """Puts nodes in order, and leaves out those that no output depends on; the names that are left."""
    needed = {value.name for value in graph.output}
    kept = []
    for node in reversed(_in_order(graph.node)):
        if needed & set(node.output):
            kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
            needed |= set(names_read(node))
    kept.reverse()
    del graph.node[:]
    graph.node.extend(kept)
    return needed


def _in_order(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Producers before readers, which onnxruntime does not ask for."""
    listed = list(nodes)
    producers = {name: place for place, node in enumerate(listed) for name in node.output if name}
    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(range(len(listed)))
    for place, node in enumerate(listed):
        order.add_edges_from((producers[n], place) for n in names_read(node) if n in producers)
    return [listed[place] for place in nx.lexicographical_topological_sort(order)]
