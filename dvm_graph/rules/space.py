"""What a rule may ask about two groups of operators that could share a kernel, as Python's meetings answer it.

The static fuser answers from proofs over symbolic dims, the streaming fuser from concrete extents
(`stream/`); the table of patterns is the same for both (`table.def`), and so are the questions
(`rules.h`).
"""

from __future__ import annotations

import enum
from typing import Protocol

from dvm_graph.options import FusionLimits
from dvm_graph.records import record


class PartKind(enum.Enum):
    VIEW = "view"
    """Relayouts only."""
    VECTOR = "vector"
    CUBE = "cube"
    HOST = "host"
    """Not a kernel: a concat that joins the stores of others, dims written by the host."""

    __hash__ = object.__hash__  # that of an Enum is Python's, and every meeting looks kinds up


class Merge(enum.Enum):
    """Whether two iteration spaces are one."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@record(frozen=True, slots=True)
class MergeProof:
    merge: Merge
    reason: str = ""
    symbols: tuple[str, ...] = ()


class Part(Protocol):
    """One of the two groups."""

    @property
    def kind(self) -> PartKind: ...
    @property
    def operators(self) -> int:
        """Number of operators that compute."""

    @property
    def reduces(self) -> bool:
        """Holds a reduction."""

    @property
    def gathers(self) -> bool:
        """Reads by index."""


class Meeting(Protocol):
    """A producer, a consumer, and what lies between them."""

    @property
    def producer(self) -> Part: ...
    @property
    def consumer(self) -> Part: ...
    @property
    def limits(self) -> FusionLimits: ...

    def needs_memory(self) -> bool:
        """The consumer reads by a slice, an index or as a matrix operand: from memory only."""
        ...

    def feeds_matrix(self) -> bool:
        """The consumer reads the producer as the A operand of one matrix product, maybe through views;
        beside it at most one number for each of its rows, behind the product.
        """
        ...

    def needs_buffer(self) -> bool:
        """The consumer reads by strides of its own, as a slice does: no view can lie between."""
        ...

    def detour(self) -> str:
        """Name of a third group that lies between the two; empty: none."""
        ...

    def depends(self) -> bool:
        """One of the two needs a result of the other, itself or by way of others."""
        ...

    def accesses(self) -> int:
        """Distinct tensors that a merged kernel would load or store."""
        ...

    def sole_consumer(self) -> bool:
        """Nobody else uses the results of the producer."""
        ...

    def is_private(self) -> bool:
        """Only the consumer uses the results of the producer, the model does not return them."""
        ...

    def products(self) -> int:
        """Matrix products of both."""
        ...

    def arithmetics(self) -> int:
        """Number of types in which the matrix products of both are summed."""

    def shares_rows(self) -> bool:
        """All matrix products of both read one tensor from outside as their A operand."""
        ...

    def operand_width(self) -> int:
        """Elements of the B operands of both matrix products per column of the producer's, as far as
        they are numbers: what is read again for each block of rows. 0: the producer holds none.
        """
        ...

    def merge(self) -> MergeProof:
        """Whether the iteration spaces can be one; they are until `part`."""
        ...

    def part(self) -> None:
        """All is as it was before `merge`."""
        ...

    def one_domain(self) -> bool:
        """Some operator of the merged spaces iterates over all axes."""
        ...

    def same_domain(self) -> bool:
        """Both groups iterate over all axes of the merged domain."""
        ...

    def recomputes(self) -> bool:
        """The merged domain has axes along which the producer does not vary."""
        ...

    def rank(self) -> int:
        """Number of axes of the merged domain."""
        ...

    def most_axes(self) -> int:
        """That a domain may have."""
        ...

    def feeds_reductions_only(self) -> bool:
        """The consumer's results go to reductions only, while others need its operands too."""
        ...

    def reduces_rows(self) -> bool:
        """The reductions of the consumer fold whole rows of the matrix product, nothing else."""
        ...

    def computes_rows(self) -> bool:
        """The producer iterates over the rows of the A operand as the product reads it and what it
        contracts itself, varies along all of them, and folds nothing else than whole rows. What a product
        of its own has for columns is what the other one contracts, for the same rows, and its B operand is
        the same for all rows of a tile.
        """
        ...

    def within_matrix(self) -> bool:
        """All axes of the merged spaces are those of the matrix operator's result."""
        ...

    def one_matrix(self) -> bool:
        """The matrix products of both, and their B operands, iterate over the same axes, and nothing over others."""
        ...
