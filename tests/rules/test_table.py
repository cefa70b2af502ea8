"""The table of patterns over concrete answers: verdicts, and which predicate refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from dvm_graph.options import FusionLimits
from dvm_graph.rules import SIBLINGS, Merge, MergeProof, PartKind, Verdict, judge


@dataclass
class FakePart:
    kind: PartKind
    operators: int = 1
    reduces: bool = False
    gathers: bool = False


@dataclass
class FakeMeeting:
    producer: FakePart
    consumer: FakePart
    limits: FusionLimits = field(default_factory=FusionLimits)
    answers: dict[str, object] = field(default_factory=dict)
    proof: MergeProof = field(default_factory=lambda: MergeProof(Merge.YES))

    def needs_memory(self) -> bool:
        return bool(self.answers.get("needs_memory", False))

    def feeds_matrix(self) -> bool:
        return bool(self.answers.get("feeds_matrix", False))

    def is_private(self) -> bool:
        return bool(self.answers.get("is_private", True))

    def arithmetics(self) -> int:
        return 1

    def products(self) -> int:
        return int(str(self.answers.get("products", 2)))

    def shares_rows(self) -> bool:
        return bool(self.answers.get("shares_rows", True))

    def one_matrix(self) -> bool:
        return bool(self.answers.get("one_matrix", True))

    def operand_width(self) -> int:
        return int(str(self.answers.get("operand_width", 128)))

    def computes_rows(self) -> bool:
        return bool(self.answers.get("computes_rows", True))

    def needs_buffer(self) -> bool:
        return bool(self.answers.get("needs_buffer", False))

    def detour(self) -> str:
        return str(self.answers.get("detour", ""))

    def depends(self) -> bool:
        return bool(self.answers.get("depends", False))

    def accesses(self) -> int:
        return int(str(self.answers.get("accesses", 2)))

    def sole_consumer(self) -> bool:
        return bool(self.answers.get("sole_consumer", True))

    def merge(self) -> MergeProof:
        return self.proof

    def part(self) -> None:
        pass

    def one_domain(self) -> bool:
        return bool(self.answers.get("one_domain", True))

    def same_domain(self) -> bool:
        return bool(self.answers.get("same_domain", True))

    def recomputes(self) -> bool:
        return bool(self.answers.get("recomputes", False))

    def rank(self) -> int:
        return int(str(self.answers.get("rank", 3)))

    def most_axes(self) -> int:
        return 10

    def feeds_reductions_only(self) -> bool:
        return bool(self.answers.get("feeds_reductions_only", False))

    def reduces_rows(self) -> bool:
        return bool(self.answers.get("reduces_rows", True))

    def within_matrix(self) -> bool:
        return bool(self.answers.get("within_matrix", True))


VECTOR = FakePart(PartKind.VECTOR)
CUBE = FakePart(PartKind.CUBE)


@pytest.mark.parametrize(
    ("producer", "consumer", "pattern"),
    [
        (VECTOR, VECTOR, "vector"),
        (CUBE, VECTOR, "cube epilogue"),
        (FakePart(PartKind.VIEW), CUBE, "view load"),
        (VECTOR, FakePart(PartKind.VIEW), "view store"),
        (VECTOR, CUBE, "cube side input"),
        (CUBE, CUBE, "cube beside"),
    ],
)
def test_patterns(producer: FakePart, consumer: FakePart, pattern: str) -> None:
    ruling = judge(FakeMeeting(producer, consumer))
    assert (ruling.verdict, ruling.reason) == (Verdict.PATTERN, pattern)


def test_no_pattern() -> None:
    assert "no pattern" in judge(FakeMeeting(CUBE, FakePart(PartKind.HOST))).reason


@pytest.mark.parametrize(
    ("answers", "word"),
    [
        ({"needs_memory": True}, "memory"),
        ({"shares_rows": False}, "same rows"),
        ({"products": 5}, "max_products"),
        ({"is_private": False}, "others"),
        ({"detour": "softmax"}, "softmax"),
        ({"one_matrix": False}, "same points"),
    ],
)
def test_refusals_of_products_beside_each_other(answers: dict[str, object], word: str) -> None:
    ruling = judge(FakeMeeting(CUBE, CUBE, answers=answers))
    assert ruling.verdict is Verdict.SEQUENCE
    assert word in ruling.reason


def test_a_product_computes_the_a_operand_of_another() -> None:
    ruling = judge(FakeMeeting(CUBE, CUBE, answers={"feeds_matrix": True}))
    assert (ruling.verdict, ruling.reason) == (Verdict.PATTERN, "cube prologue")


def test_vector_operators_compute_the_a_operand_of_a_product() -> None:
    ruling = judge(FakeMeeting(VECTOR, CUBE, answers={"feeds_matrix": True}))
    assert (ruling.verdict, ruling.reason) == (Verdict.PATTERN, "cube prologue")


@pytest.mark.parametrize(
    ("answers", "word"),
    [({"is_private": False}, "others"), ({"computes_rows": False}, "whole rows")],
)
def test_refusals_before_a_product(answers: dict[str, object], word: str) -> None:
    ruling = judge(FakeMeeting(VECTOR, CUBE, answers={"feeds_matrix": True} | answers))
    assert ruling.verdict is Verdict.SEQUENCE
    assert word in ruling.reason


@pytest.mark.parametrize(
    ("answers", "word"),
    [
        ({"is_private": False}, "others"),
        ({"products": 3}, "two"),
        ({"operand_width": 513}, "max_operand_width"),
        ({"computes_rows": False}, "whole rows"),
        ({"detour": "softmax"}, "softmax"),
    ],
)
def test_refusals_between_products(answers: dict[str, object], word: str) -> None:
    ruling = judge(FakeMeeting(CUBE, CUBE, answers={"feeds_matrix": True} | answers))
    assert ruling.verdict is Verdict.SEQUENCE
    assert word in ruling.reason


@pytest.mark.parametrize(
    ("answers", "word"),
    [
        ({"needs_memory": True}, "memory"),
        ({"detour": "softmax"}, "softmax"),
        ({"accesses": 41}, "max_accesses"),
        ({"one_domain": False}, "domain"),
        ({"rank": 11}, "10"),
        ({"recomputes": True, "sole_consumer": False}, "again"),
    ],
)
def test_vector_refusals(answers: dict[str, object], word: str) -> None:
    ruling = judge(FakeMeeting(VECTOR, VECTOR, answers=answers))
    assert ruling.verdict is Verdict.SEQUENCE
    assert word in ruling.reason


def test_a_view_read_with_own_strides_lies_in_a_buffer() -> None:
    refused = judge(FakeMeeting(FakePart(PartKind.VIEW), CUBE, answers={"needs_buffer": True}))
    assert refused.verdict is Verdict.SEQUENCE
    assert "buffer" in refused.reason


def test_a_large_producer_is_not_recomputed() -> None:
    producer = FakePart(PartKind.VECTOR, operators=11)
    refused = judge(FakeMeeting(producer, VECTOR, answers={"recomputes": True}))
    assert refused.verdict is Verdict.SEQUENCE
    limits = FusionLimits(max_recomputed=11)
    assert judge(FakeMeeting(producer, VECTOR, limits, {"recomputes": True})).verdict is (
        Verdict.PATTERN
    )


def test_reductions_after_a_product() -> None:
    reduction = FakePart(PartKind.VECTOR, reduces=True)
    assert judge(FakeMeeting(CUBE, reduction)).verdict is Verdict.PATTERN
    refused = judge(FakeMeeting(CUBE, reduction, answers={"reduces_rows": False}))
    assert "rows" in refused.reason
    off = FusionLimits(row_resident=False)
    assert "row_resident" in judge(FakeMeeting(CUBE, reduction, off)).reason


def test_an_unknown_proof_speculates_and_names_its_symbols() -> None:
    proof = MergeProof(Merge.UNKNOWN, "if b = c", ("b", "c"))
    ruling = judge(FakeMeeting(VECTOR, VECTOR, proof=proof))
    assert ruling.verdict is Verdict.SPECULATE
    assert ruling.symbols == ("b", "c")


def test_a_refuted_proof_gives_its_reason() -> None:
    proof = MergeProof(Merge.NO, "s against t", ("s", "t"))
    ruling = judge(FakeMeeting(VECTOR, VECTOR, proof=proof))
    assert (ruling.verdict, ruling.reason) == (Verdict.SEQUENCE, "s against t")


def test_siblings_merge() -> None:
    ruling = judge(FakeMeeting(VECTOR, VECTOR), SIBLINGS)
    assert (ruling.verdict, ruling.reason) == (Verdict.PATTERN, "siblings")


@pytest.mark.parametrize(
    ("meeting", "word"),
    [
        (FakeMeeting(FakePart(PartKind.VECTOR, reduces=True), VECTOR), "element-wise"),
        (FakeMeeting(VECTOR, FakePart(PartKind.VECTOR, gathers=True)), "element-wise"),
        (FakeMeeting(VECTOR, VECTOR, answers={"depends": True}), "needs"),
        (FakeMeeting(VECTOR, VECTOR, answers={"accesses": 1000}), "max_accesses"),
        (FakeMeeting(VECTOR, VECTOR, answers={"same_domain": False}), "same points"),
    ],
)
def test_what_siblings_must_not_do(meeting: FakeMeeting, word: str) -> None:
    ruling = judge(meeting, SIBLINGS)
    assert ruling.verdict is Verdict.SEQUENCE
    assert word in ruling.reason
