"""The fusion patterns: which two groups may share a kernel, as data.

A pattern applies to a pair of kinds and demands its predicates in order; the first that fails gives
the reason for a refusal. Predicates are pure over `space.Meeting`, so that the same table serves
symbolic proofs and concrete extents. Nothing here mutates a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dvm_graph.rules.space import Meeting, Merge, PartKind
from dvm_graph.rules.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Ruling:
    """The answer of a rule, without its subject."""

    verdict: Verdict
    reason: str
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Predicate:
    name: str
    holds: Callable[[Meeting], bool]
    refusal: Callable[[Meeting], str]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One row of the table."""

    name: str
    producers: frozenset[PartKind]
    consumers: frozenset[PartKind]
    before: tuple[Predicate, ...]
    """Predicates that need no common iteration space."""
    after: tuple[Predicate, ...]
    """Predicates over the merged iteration space."""
    feeds_matrix: bool = False
    """For producers that are the A operand of the consumer's product; else for all others."""


def _says(text: str) -> Callable[[Meeting], str]:
    return lambda meeting: text


FROM_REGISTERS = Predicate(
    "from_registers",
    lambda m: not m.needs_memory(),
    _says("the consumer reads it by slice, index or as a matrix operand: it has to be in memory"),
)
ADDRESSED = Predicate(
    "addressed",
    lambda m: not m.needs_buffer(),
    _says("the consumer reads it with strides of its own: it has to lie in a buffer of its shape"),
)
ACYCLIC = Predicate(
    "acyclic",
    lambda m: not m.detour(),
    lambda m: f"{m.detour()} lies between them: fusing would make a cycle",
)
INDEPENDENT = Predicate(
    "independent",
    lambda m: not m.depends(),
    _says("the one needs what the other computes, at other points than those it computes itself"),
)
FEW_OPERATORS = Predicate(
    "few_operators",
    lambda m: m.producer.operators + m.consumer.operators <= m.limits.max_operators,
    lambda m: f"more than {m.limits.max_operators} operators (limits.max_operators)",
)
FEW_ACCESSES = Predicate(
    "few_accesses",
    lambda m: m.accesses() <= m.limits.max_accesses,
    lambda m: f"more than {m.limits.max_accesses} tensors (limits.max_accesses)",
)
SHORT_EPILOGUE = Predicate(
    "short_epilogue",
    lambda m: m.producer.operators - 1 + m.consumer.operators <= m.limits.max_epilogue,
    lambda m: f"more than {m.limits.max_epilogue} epilogue operators (limits.max_epilogue)",
)
NO_GATHER = Predicate(
    "no_gather",
    lambda m: not m.consumer.gathers,
    _says("a gather is no element-wise epilogue"),
)
ROWS_ALLOWED = Predicate(
    "rows_allowed",
    lambda m: not m.consumer.reduces or m.limits.row_resident,
    _says("a reduction is no element-wise epilogue (limits.row_resident)"),
)
REDUCES_ROWS = Predicate(
    "reduces_rows",
    lambda m: not m.consumer.reduces or m.reduces_rows(),
    _says("the reduction folds other axes than the rows of the matrix product"),
)
PAYS = Predicate(
    "pays",
    lambda m: not m.feeds_reductions_only(),
    _says("a reduction would read the result, and its operand is stored anyway: nothing is saved"),
)
ELEMENTWISE_PRODUCER = Predicate(
    "elementwise_producer",
    lambda m: not m.producer.reduces and not m.producer.gathers,
    lambda m: f"a {'reduction' if m.producer.reduces else 'gather'} is no element-wise side input",
)
ONE_DOMAIN = Predicate(
    "one_domain",
    lambda m: m.one_domain(),
    _says("no operator iterates over all axes of both: they have no common domain"),
)
LOW_RANK = Predicate(
    "low_rank",
    lambda m: m.rank() <= m.most_axes(),
    lambda m: f"the common domain would have more than {m.most_axes()} axes",
)
CHEAP_BROADCAST = Predicate(
    "cheap_broadcast",
    lambda m: (
        not m.recomputes()
        or (
            m.sole_consumer()
            and not m.producer.reduces
            and m.producer.operators <= m.limits.max_recomputed
        )
    ),
    _says("the producer would be computed again along the consumer's other axes"),
)
WITHIN_MATRIX = Predicate(
    "within_matrix",
    lambda m: m.within_matrix(),
    _says("the operator iterates over axes that the matrix product does not have"),
)
SCALAR_PRODUCER = Predicate(
    "cheap_side_input",
    lambda m: m.producer.operators <= m.limits.max_recomputed and m.sole_consumer(),
    _says("a computed operand of an epilogue is computed once, outside"),
)

ELEMENTWISE = Predicate(
    "elementwise",
    lambda m: not any(part.reduces or part.gathers for part in (m.producer, m.consumer)),
    _says("only element-wise operators share a kernel without feeding each other"),
)
SAME_DOMAIN = Predicate(
    "same_domain",
    lambda m: m.same_domain(),
    _says("they do not iterate over the same points"),
)
PRIVATE = Predicate(
    "private",
    lambda m: m.private(),
    _says("others use it too, so it has to be in memory anyway"),
)
TWO_PRODUCTS = Predicate(
    "two_products",
    lambda m: m.products() <= 2,
    _says("a kernel holds two matrix products at most"),
)
ONE_ARITHMETIC = Predicate(
    "one_arithmetic",
    lambda m: m.arithmetics() <= 1,
    _says("its product is summed in another type"),
)
NARROW_OPERANDS = Predicate(
    "narrow_operands",
    lambda m: m.operand_width() <= m.limits.max_operand_width,
    lambda m: (
        f"more than {m.limits.max_operand_width} elements of the B operands would be read again "
        "per column for each block of rows (limits.max_operand_width)"
    ),
)
RESIDENT = Predicate(
    "resident",
    lambda m: m.limits.row_resident,
    _says("the rows of its A operand would have to stay in local memory (limits.row_resident)"),
)
COMPUTES_ROWS = Predicate(
    "computes_rows",
    lambda m: m.computes_rows(),
    _says("it does not compute whole rows of the A operand, each once"),
)

_VIEW, _VECTOR, _CUBE = PartKind.VIEW, PartKind.VECTOR, PartKind.CUBE

PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "view load",
        frozenset({_VIEW}),
        frozenset({_VIEW, _VECTOR, _CUBE}),
        (ADDRESSED, ACYCLIC),
        (LOW_RANK,),
    ),
    Pattern(
        "view store",
        frozenset({_VECTOR}),
        frozenset({_VIEW}),
        (FROM_REGISTERS, ACYCLIC, FEW_ACCESSES),
        (LOW_RANK, ONE_DOMAIN),
    ),
    Pattern(
        "cube epilogue",
        frozenset({_CUBE}),
        frozenset({_VECTOR, _VIEW}),
        (FROM_REGISTERS, NO_GATHER, ROWS_ALLOWED, SHORT_EPILOGUE, FEW_ACCESSES, PAYS, ACYCLIC),
        (LOW_RANK, WITHIN_MATRIX, REDUCES_ROWS),
    ),
    Pattern(
        "cube side input",
        frozenset({_VECTOR}),
        frozenset({_CUBE}),
        (FROM_REGISTERS, ELEMENTWISE_PRODUCER, SCALAR_PRODUCER, FEW_ACCESSES, ACYCLIC),
        (LOW_RANK, WITHIN_MATRIX),
    ),
    Pattern(
        "cube prologue",
        frozenset({_CUBE, _VECTOR}),
        frozenset({_CUBE}),
        (
            RESIDENT,
            PRIVATE,
            TWO_PRODUCTS,
            ONE_ARITHMETIC,
            NARROW_OPERANDS,
            FEW_OPERATORS,
            FEW_ACCESSES,
            ACYCLIC,
        ),
        (LOW_RANK, COMPUTES_ROWS),
        feeds_matrix=True,
    ),
    Pattern(
        "vector",
        frozenset({_VECTOR}),
        frozenset({_VECTOR}),
        (FROM_REGISTERS, FEW_OPERATORS, FEW_ACCESSES, ACYCLIC),
        (LOW_RANK, ONE_DOMAIN, CHEAP_BROADCAST),
    ),
)
"""At most one pattern matches a pair of kinds and a way of reading."""

SIBLINGS = Pattern(
    "siblings",
    frozenset({_VECTOR}),
    frozenset({_VECTOR}),
    (ELEMENTWISE, FEW_OPERATORS, FEW_ACCESSES, INDEPENDENT),
    (LOW_RANK, SAME_DOMAIN),
)
"""Two groups that read a tensor at the same points, and do not depend on each other: no path leads from
one to the other, edges included. `merged` of siblings looks at no edges, so none may be there."""


_BY_KINDS = {
    (producer, consumer, pattern.feeds_matrix): pattern
    for pattern in PATTERNS
    for producer in pattern.producers
    for consumer in pattern.consumers
}


def pattern_of(meeting: Meeting) -> Pattern | None:
    kinds = meeting.producer.kind, meeting.consumer.kind
    feeding = _BY_KINDS.get((*kinds, True))
    if feeding is not None and meeting.feeds_matrix():
        return feeding
    return _BY_KINDS.get((*kinds, False))


def judge(meeting: Meeting, pattern: Pattern | None = None) -> Ruling:
    """PATTERN, SPECULATE, or SEQUENCE with the reason why not; by the pattern of the kinds unless one
    is given. Nothing that the meeting knows is another afterwards.
    """
    pattern = pattern or pattern_of(meeting)
    if pattern is None:
        kinds = f"{meeting.producer.kind.value} into {meeting.consumer.kind.value}"
        return Ruling(Verdict.SEQUENCE, f"no pattern fuses {kinds}")
    for predicate in pattern.before:
        if not predicate.holds(meeting):
            return Ruling(Verdict.SEQUENCE, predicate.refusal(meeting))
    with meeting.merged() as proof:
        if proof.merge is Merge.NO:
            return Ruling(Verdict.SEQUENCE, proof.reason, proof.symbols)
        for predicate in pattern.after:
            if not predicate.holds(meeting):
                return Ruling(Verdict.SEQUENCE, predicate.refusal(meeting), proof.symbols)
    if proof.merge is Merge.UNKNOWN:
        return Ruling(Verdict.SPECULATE, f"{pattern.name}; {proof.reason}", proof.symbols)
    return Ruling(Verdict.PATTERN, pattern.name, proof.symbols)
