"""A model in float64: who of two engines that differ is off.

In: a model and arrays for its inputs. Out: its outputs, computed by its basic operators in float64; vendor
operators compute in their own types.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dvm_graph.check.calls import run_call
from dvm_graph.check.extents import Extents
from dvm_graph.check.reference import Reference
from dvm_graph.decompose import decompose
from dvm_graph.import_ import import_onnx
from dvm_graph.ir import Array, Node, Value
from dvm_graph.options import Options
from dvm_graph.pipeline import Source
from dvm_graph.symbolic import Facts, Symbol, Symbols


def float64_outputs(source: Source, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of a model; integers and what else is no float in their own types.

    Raises:
        DvmError: a vendor operator fails on these inputs, or dims cannot be told from them.
    """
    facts, options = Facts(Symbols()), Options()
    graph = decompose(import_onnx(source, options, facts.symbols), facts, options)
    extents = Extents({})
    reference = Reference(extents)
    for value in graph.inputs:
        array = np.asarray(feeds[value.name])
        _bind(extents, value, array)
        reference.give(value, array)
    with np.errstate(all="ignore"):
        for node in graph.sorted_nodes():
            _run(node, extents, reference)
    return [reference.operand(value).value for value in graph.outputs]


def _run(node: Node, extents: Extents, reference: Reference) -> None:
    if not node.is_call:
        reference.known[node.output] = reference.result(node)
        return
    for value, result in zip(node.outputs, run_call(node, reference), strict=True):
        _bind(extents, value, result.value)
        reference.give(value, result.value)


def _bind(extents: Extents, value: Value, array: Array) -> None:
    for dim, extent in zip(value.shape or (), array.shape, strict=False):
        if isinstance(dim, Symbol):
            extents.bind(dim, extent)
