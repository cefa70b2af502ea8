"""Which parts of operators the fuzzer draws, and which there are.

A part is an attribute, an operand, a result or an element type of one version of an operator. There are those of the schemas
of onnx at the fuzzer's opsets, and of the schemas of onnxruntime for the operators of its own domain for which it has
kernels; of element types those that a kernel takes. What is drawn is found out by drawing: nothing is said twice.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Iterator
from typing import Any

from onnx import defs, helper

from tests.fuzz import operators
from tests.fuzz.case import OPSETS, environments, nodes_of
from tests.fuzz.growth import DTYPES, Growth, RefusedError
from tests.fuzz.kernels import kernels, own
from tests.fuzz.left_out import LEFT_OUT
from tests.fuzz.operands import MICROSOFT
from tests.fuzz.registry import NAMES

LEAST_TRIES, MOST_TRIES = 5, 600
"""Draws of one version of an operator: the most as long as something has not been drawn."""

WHOLE = "node"
"""The part that is the operator itself."""


def undrawn(name: str, version: int) -> tuple[set[str], set[str]]:
    """The parts of a version of an operator that are not drawn though they are not left out, and those that are left out
    and drawn all the same; `name` begins with the domain, where there is one.
    """
    excused = left_out(name, version)
    left, drawn = set(wanted(name, version)) - excused, set[str]()
    opsets = opsets_of(name, version)
    rng = random.Random(f"{name}:{version}")
    for turn in range(MOST_TRIES):
        if not left and turn >= LEAST_TRIES:
            break
        opset = opsets[-1 - turn % len(opsets)]
        g = Growth(rng, opset, environments(rng), DTYPES)
        try:
            operators.draw(g, name)
        except RefusedError:
            continue
        found = set(_drawn(g, name))
        left -= found
        drawn |= found
    return left, drawn & excused


def left_out(name: str, version: int) -> set[str]:
    """The parts of a version of an operator that are not drawn, by name."""
    texts = [
        listed.get(key, "") for listed in LEFT_OUT.values() for key in (name, f"{name} {version}")
    ]
    parts = {part for text in texts for part in text.split("; ") if part}
    return {found for part in parts for found in meant(part, wanted(name, version))}


def meant(part: str, among: Iterable[str]) -> set[str]:
    """What `LEFT_OUT` calls a part."""
    if part == WHOLE:
        return set(among)
    return {p for p in among if p == part or p.startswith(f"{part} of ") or p.endswith(f" {part}")}


def versions() -> Iterator[tuple[str, int]]:
    """All operators that may run on onnxruntime, with the opset that brought each version."""
    for schema in _standard():
        name, version = schema.name, schema.since_version
        function = schema.has_function or schema.has_context_dependent_function
        if name not in operators.EXCLUDED and (function or _kernels_of(name, version)):
            yield name, version
    for name in sorted(own()):
        yield f"{MICROSOFT}.{name}", 1


@functools.cache
def wanted(name: str, version: int) -> frozenset[str]:
    """The parts of a version of an operator, `WHOLE` among them."""
    found = {WHOLE}
    domain, _, op = name.rpartition(".")
    if domain:
        schema: Any = own()[op]
    else:
        schema = defs.get_schema(op, version, "")
    attributes = [a for a in schema.attributes if a != "opset"]
    found.update(f"attribute {attribute}" for attribute in attributes)
    found.update(f"operand {parameter.name}" for parameter in schema.inputs)
    found.update(f"result {parameter.name}" for parameter in schema.outputs)
    for kernel in _kernels_of(name, version):
        for parameter in schema.inputs:
            name_of = parameter.typeStr if domain else parameter.type_str
            types = set(kernel.type_constraints.get(name_of, ())) & NAMES.keys()
            types &= types if domain else parameter.types
            found.update(f"operand {parameter.name} of {t}" for t in types)
    return frozenset(found)


def _drawn(g: Growth, name: str) -> Iterator[str]:
    domain, _, op = name.rpartition(".")
    types = {
        value.name: value.dtype for value in (*g.values, *(i.value for i in g.inputs.values()))
    }
    types |= {tensor.name: tensor.data_type for tensor in g.constants.values()}
    names = {number: text for text, number in NAMES.items()}
    graph = helper.make_graph(g.nodes, "drawn", [], [])
    for node in nodes_of(graph):
        if node.op_type != op or node.domain != domain:
            continue
        schema: Any = own()[op] if domain else defs.get_schema(op, g.opset, "")
        yield WHOLE
        yield from (f"attribute {attribute.name}" for attribute in node.attribute)
        for at, given in enumerate(node.input):
            parameter = schema.inputs[min(at, len(schema.inputs) - 1)]
            if given:
                yield f"operand {parameter.name}"
                yield f"operand {parameter.name} of {names.get(types.get(given, 0))}"
        for at, given in enumerate(node.output):
            if given:
                yield f"result {schema.outputs[min(at, len(schema.outputs) - 1)].name}"


def opsets_of(name: str, version: int) -> list[int]:
    """The fuzzer's opsets that have this version of an operator."""
    first, last = _range(name, version)
    return [opset for opset in OPSETS if first <= opset <= last]


@functools.cache
def _range(name: str, version: int) -> tuple[int, int]:
    """The opsets that have this version of an operator; all, of operators of other domains."""
    if "." in name:
        return OPSETS[0], OPSETS[-1]
    later = [s.since_version for s in _every_version() if s.name == name]
    return version, min((v - 1 for v in later if v > version), default=OPSETS[-1])


def _kernels_of(name: str, version: int) -> list[Any]:
    """onnxruntime takes a kernel without a last version for the first one only."""
    domain, _, op = name.rpartition(".")
    found = []
    for kernel in kernels().get((domain, op), ()):
        since, until = kernel.version_range
        if since == version or (until < _NO_END and since <= version <= until):
            found.append(kernel)
    return found


_NO_END = 2**31 - 1


@functools.cache
def _every_version() -> list[Any]:
    return [s for s in defs.get_all_schemas_with_history() if s.domain == ""]


@functools.cache
def _standard() -> list[Any]:
    found = [
        schema
        for schema in _every_version()
        if not schema.deprecated and _range(schema.name, schema.since_version)[1] >= OPSETS[0]
    ]
    return sorted(found, key=lambda schema: (schema.name, schema.since_version))
