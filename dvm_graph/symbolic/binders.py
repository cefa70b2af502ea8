"""What binds symbols: dims of inputs, and vendor operators whose sizes are known once they have run.

In: dims. Out: the symbol that each can be solved for, and those that solve nothing.

In: a graph of basic and vendor operators. Out: the operator of each such symbol, and the symbols an
operator needs. No edge of the graph says so: only shapes and attributes mention the symbol.

Only computable values bind symbols: of others the executor does not see the shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dvm_graph.errors import ShapeError
from dvm_graph.ir import Dim, Graph, Node
from dvm_graph.symbolic.dims import substitute, symbols_of
from dvm_graph.symbolic.expressions import Expression, Symbol


@dataclass(frozen=True, slots=True)
class Solution:
    """A dim that is `scale * symbol + shift`."""

    symbol: Symbol
    scale: int
    shift: int


def solve(dim: Dim) -> Solution | None:
    """The symbol that an extent of this dim determines; None: there is none, or not one alone."""
    symbols = symbols_of(dim) if not isinstance(dim, int) else ()
    if len(symbols) != 1:
        return None
    (symbol,) = symbols
    if dim is symbol:
        return Solution(symbol, 1, 0)
    try:
        shift, next_value, third = (substitute(dim, {symbol: x}) for x in (0, 1, 2))
    except ShapeError:  # not defined at all of them
        return None
    if not (isinstance(shift, int) and isinstance(next_value, int) and isinstance(third, int)):
        return None
    scale = next_value - shift
    if scale == 0 or third - next_value != scale or dim != symbol * scale + shift:
        return None
    return Solution(symbol, scale, shift)


def unsolved_dims(shapes: Iterable[Sequence[Dim]]) -> list[Dim]:
    """Dims of which some symbol is determined by none of them, or only by less than nothing."""
    found = [dim for shape in shapes for dim in shape if not isinstance(dim, int)]
    solutions = [solution for solution in map(solve, found) if solution is not None]
    solved = {solution.symbol for solution in solutions if solution.scale > 0}
    return [dim for dim in dict.fromkeys(found) if not solved.issuperset(symbols_of(dim))]


def find_binders(graph: Graph, order: Sequence[Node]) -> dict[Symbol, Node]:
    """The vendor operator whose result binds a symbol, for symbols that no input binds.

    Results of others may mention it, too: what an operator reads to begin with it does not bind, and it may stand
    before the one that does, since no edge says that it needs that one.
    """
    given = {s for value in graph.inputs if value.computable for s in symbols_in(value.shape)}
    told = {node: set(_told(node)) - given for node in order if node.is_call}
    wanted = set().union(*told.values())
    binders: dict[Symbol, Node] = {}
    if not wanted:
        return binders
    before = _read_before(order, _read_early(order, told))
    for node in told:
        for symbol in _told(node):
            if symbol not in given and symbol not in before.get(node, ()):
                binders.setdefault(symbol, node)
    return binders


def _read_early(order: Sequence[Node], told: Mapping[Node, set[Symbol]]) -> set[Symbol]:
    """Symbols that are read before, or by, an operator that tells them: most are told first."""
    waiting = Counter(symbol for symbols in told.values() for symbol in symbols)
    read: set[Symbol] = set()
    early: set[Symbol] = set()
    for node in order:
        if waiting:
            read.update(symbol for symbol in _read(node) if symbol in waiting)
        for symbol in told.get(node, ()):
            if symbol in read:
                early.add(symbol)
            waiting[symbol] -= 1
            if not waiting[symbol]:
                del waiting[symbol]
    return early


def _read_before(order: Sequence[Node], wanted: set[Symbol]) -> dict[Node, set[Symbol]]:
    """Of some symbols, those that each operator or what it rests on reads."""
    before: dict[Node, set[Symbol]] = {}
    for node in order if wanted else ():
        made_by = [v.producer for v in node.inputs if v is not None and v.producer is not None]
        before[node] = wanted.intersection(_read(node)).union(*map(before.__getitem__, made_by))
    return before


def _read(node: Node) -> Iterator[Symbol]:
    """What an operator's operands and attributes mention."""
    shapes = (v.shape for v in node.inputs if v is not None and v.computable)
    yield from symbols_in(tuple(shapes))
    yield from _of_attributes(node)


def _told(node: Node) -> Iterator[Symbol]:
    """What shapes of an operator's results mention."""
    return (s for value in node.outputs if value.computable for s in symbols_in(value.shape))


def holds_run_to(node: Node) -> bool:
    """Whether an operator refuses runs, whoever reads its results: one of the host whose result has extents but no elements, or
    that looks into strings as they were fed.
    """
    if node.op != "host" or node.outputs[0].shape is None:
        return False
    return node.outputs[0].shape[:1] == (0,) or tells_extents_of_feed(node)


def tells_extents_of_feed(node: Node) -> bool:
    """Whether the result of an operator of the host has the extents of strings that were fed, which nothing else tells."""
    first = node.inputs[0] if node.inputs else None
    if first is None or first.computable or first.shape is None or first.is_constant:
        return False
    return first.producer is None and node.outputs[0].computable


def needed_symbols(node: Node) -> Iterator[Symbol]:
    """Symbols without whose values an operator cannot run: every one that its attributes, its
    operands or its results mention.
    """
    for value in (*node.inputs, *node.outputs):
        if value is not None:
            yield from symbols_in(value.shape)
    yield from _of_attributes(node)


def _of_attributes(node: Node) -> Iterator[Symbol]:
    """Those of a vendor operator are its NodeProto's: numbers and texts, of a tree ensemble millions."""
    return symbols_in(tuple(node.attrs.values()) if node.op != "vendor" else ())


def symbols_in(content: Any) -> Iterator[Symbol]:
    """Symbols of a dim, or of dims in nested tuples; of attributes that are no dims none."""
    if isinstance(content, tuple | list):
        for part in content:
            yield from symbols_in(part)
    elif isinstance(content, Expression):
        yield from symbols_of(content)
