"""How the operands and results of a `control` operator are laid out: an If, Loop or Scan with compiled bodies.

    If      operands (condition, what branches read...), bodies (then, else) of what branches read
    turns   operands ([most turns] [whether to begin] states, scanned, what the body reads...), one body of
            ([turn, whether it goes on] states, a row of each scanned, what it reads...), which gives
            ([whether to go on] states, a row for each collected), and maybe another one, for the first turn, that
            does the same for the states that there are then; results (last states, collected)

Tensors are scanned and collected along their first axis. Bodies are closed but for dims: symbols from around
them mean there what they mean here. What is constant is none of the operands; bodies hold it themselves.

The last body of turns may be a *prelude* of (what bodies read...), which runs once, before the first turn, where there is
one. Its results the other bodies read behind all else.

Attribute `strands` of turns names a symbol of the body: elements along axes of that extent have nothing to do with each
other. Whatever has such an axis, states and rows at least, has it behind axes of extent 1 only.
"""

from __future__ import annotations

from typing import NamedTuple

from dvm_graph.ir.graph import Graph, Node


class Turns(NamedTuple):
    """A Loop or Scan: attribute `turns` of `control` operators; that of an If is None."""

    counted: bool
    """The body reads number and condition of its turn, and says whether to go on: a Loop."""
    most_turns: int
    """The operand that limits their number; -1: there is none."""
    goes_on: int
    """The operand that says whether to begin at all; -1: there is none, and it does."""
    states: int
    """Values that are carried from turn to turn."""
    scanned: tuple[bool, ...]
    """Of each tensor that rows are read of, whether the last comes first."""
    collected: tuple[bool, ...]
    """Of each tensor that rows are stored into, whether the last comes first."""
    kept: int = 0
    """Results of the prelude; 0: there is none."""

    @property
    def first(self) -> int:
        """The operand that is the first state."""
        return (self.most_turns >= 0) + (self.goes_on >= 0)


def captures(turns: Turns | None) -> tuple[int, int]:
    """Where what bodies read as it is begins: among the operands, and among the inputs of a body."""
    if turns is None:
        return 1, 0
    own = turns.states + len(turns.scanned)
    return turns.first + own, 2 * turns.counted + own


def bodies_of_turns(node: Node) -> tuple[Graph, ...]:
    """The body of all turns, and maybe that of the first one; no prelude."""
    return node.bodies[:-1] if Turns(*node.attrs["turns"]).kept else node.bodies


def names_of_bodies(node: Node) -> tuple[str, ...]:
    """What the bodies of a `control` operator are called."""
    if node.attrs["turns"] is None:
        return "then", "else"
    of_turns = len(bodies_of_turns(node))
    return *("body", "first turn")[:of_turns], *("prelude",)[: len(node.bodies) - of_turns]
