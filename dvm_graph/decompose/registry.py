"""The table of decompositions: which function breaks which ONNX operator into basic operators.

A decomposition gets a builder, the ONNX node and its operands (values of the new graph, `None` for
an omitted one) and returns the results in the order of the node's outputs; it may return more or
fewer, as long as every output that is used has one. It returns `None` for a configuration that it
cannot express, before or after building anything: what it has built is taken back.

Functions enter themselves when their file is loaded, which `families` tells: it is, where a model has an operator of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dvm_graph.decompose.families import FAMILIES
from dvm_graph.import_ import are_strings
from dvm_graph.ir import Node, Value
from dvm_graph.process import load_module
from dvm_graph.symbolic.builder import Builder

Operands: TypeAlias = Sequence[Value | None]
Results: TypeAlias = Sequence[Value | None] | None
Decomposition: TypeAlias = Callable[[Builder, Node, Operands], Results]

Preference: TypeAlias = Callable[[Node, Operands], bool]

_HOMES: Mapping[tuple[str, str], str] = {
    (domain, operator): f"{__package__}.{family}"
    for family, domains in FAMILIES.items()
    for domain, operators in domains.items()
    for operator in operators.split()
}
"""The modules of the families, by domain and operator."""
_TABLE: dict[tuple[str, str], Decomposition] = {}
_ACCEPTED: dict[Decomposition, Callable[[Value], bool]] = {}
"""Of those whose operands may be others than kernels compute with: which they may be."""
_PREFERENCES: dict[Decomposition, Preference] = {}


def decomposition(*operators: str, domain: str = "") -> Callable[[Decomposition], Decomposition]:
    """Enters a function into the table, for one or several operators of its family."""

    def enter(function: Decomposition) -> Decomposition:
        for operator in operators:
            home = _HOMES.get((domain, operator))
            assert home == function.__module__, f"families.py has {operator} in {home}"
            assert (domain, operator) not in _TABLE, f"two decompositions of {operator}"
            _TABLE[domain, operator] = function
        return function

    return enter


def _of(accepted: Callable[[Value], bool]) -> Callable[[Decomposition], Decomposition]:
    def enter(function: Decomposition) -> Decomposition:
        _ACCEPTED[function] = accepted
        return function

    return enter


of_containers = _of(lambda value: value.native)
"""Marks one whose operands may be sequences and optional values."""
of_strings = _of(lambda value: value.computable or are_strings(value))
"""Marks one whose operands may be strings."""
of_constants = _of(lambda value: value.computable or value.is_constant)
"""Marks one whose constant operands may be of types that kernels lack."""


def accepts(function: Decomposition, operands: Operands) -> bool:
    """Whether a function is marked as one of such operands."""
    accepted = _ACCEPTED.get(function)
    return accepted is not None and all(value is None or accepted(value) for value in operands)


def unless(preference: Preference) -> Callable[[Decomposition], Decomposition]:
    """Leaves what the vendor library runs faster to it; `strict`, which has no vendor operators,
    decomposes that all the same.
    """

    def enter(function: Decomposition) -> Decomposition:
        _PREFERENCES[function] = preference
        return function

    return enter


def faster_as_vendor(function: Decomposition, node: Node, operands: Operands) -> bool:
    """Whether a node is decomposed under `strict` only."""
    preference = _PREFERENCES.get(function)
    return preference is not None and preference(node, operands)


def find(node: Node) -> Decomposition | None:
    """The decomposition of a node's operator, if there is one."""
    home = _HOMES.get((node.domain, node.op))
    if home is None:
        return None
    load_module(home)
    return _TABLE[node.domain, node.op]


def native_operators() -> frozenset[tuple[str, str]]:
    """All (domain, operator) pairs that there are decompositions of."""
    return frozenset(_HOMES)
