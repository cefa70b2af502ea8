"""Proofs from facts: soundness on samples, and what has to be provable."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dvm_graph.errors import ShapeError
from dvm_graph.symbolic import Answer, Facts, Proof, Relation, dims, substitute
from tests.symbolic.trees import NAMES, Tree, UndefinedError, assignments, build, trees, value

Assignment = dict[str, int]
ALL = [dict(zip(NAMES, numbers, strict=True)) for numbers in itertools.product(range(5), repeat=3)]

small_trees = st.recursive(
    st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 6)),
    lambda t: st.one_of(
        st.tuples(st.sampled_from(("add", "sub", "mul")), t, t),
        st.tuples(st.sampled_from(("floordiv", "minimum", "maximum", "mod")), t, t),
        st.tuples(st.just("floordiv"), t, st.integers(1, 3)),
    ),
    max_leaves=4,
)
facts_strategy = st.lists(
    st.one_of(
        st.tuples(st.just("equal"), small_trees, small_trees),
        st.tuples(st.just("equal"), st.sampled_from(NAMES), small_trees),
        st.tuples(st.just("range"), st.sampled_from(NAMES), st.integers(0, 2)),
    ),
    max_size=4,
)


def _holds(fact: tuple[str, Tree, Tree], assignment: Assignment) -> bool:
    kind, first, second = fact
    if kind == "range":
        return second <= value(first, assignment) <= second + 2
    return value(first, assignment) == value(second, assignment)


def _assume(facts: Facts, fact: tuple[str, Tree, Tree]) -> None:
    kind, first, second = fact
    if kind == "range":
        facts.assume_range(facts.symbols.get(first), second, second + 2, "given")
        return
    facts.assume_equal(build(first, facts.symbols), build(second, facts.symbols), "given")


def _check(proof: Proof, truths: list[bool]) -> None:
    if proof.yes:
        assert all(truths), proof.reason
    if proof.no:
        assert not any(truths), proof.reason


@settings(max_examples=400, deadline=None)
@given(facts_strategy, small_trees, small_trees)
def test_answers_hold_wherever_the_facts_do(
    given_facts: list[tuple[str, Tree, Tree]], first: Tree, second: Tree
) -> None:
    facts = Facts()
    for name in NAMES:
        facts.symbols.get(name)

    def satisfying() -> list[Assignment]:
        kept = []
        for assignment in ALL:
            try:
                if all(_holds(fact, assignment) for fact in given_facts):
                    value(first, assignment)
                    value(second, assignment)
                    kept.append(assignment)
            except UndefinedError:
                continue
        return kept

    samples = satisfying()
    try:
        for fact in given_facts:
            _assume(facts, fact)
        left, right = build(first, facts.symbols), build(second, facts.symbols)
    except ShapeError:
        assert not samples  # the facts do contradict each other
        return
    pairs = [(value(first, s), value(second, s)) for s in samples]
    assert facts.same(left, right) == facts.prove_equal(left, right).yes
    _check(facts.prove_equal(left, right), [a == b for a, b in pairs])
    _check(facts.prove_less_equal(left, right), [a <= b for a, b in pairs])
    _check(facts.prove_one(left), [a == 1 for a, _ in pairs])
    divides = [b == 0 if a == 0 else b % a == 0 for a, b in pairs]
    assert not facts.divides(left, right) or all(divides)
    _check_canonical(facts, left, first, samples)
    low, high = facts.bounds(left)
    assert all(low <= a <= high for a, _ in pairs)


def _check_canonical(facts: Facts, dim: object, tree: Tree, samples: list[Assignment]) -> None:
    canonical = facts.canonical(dim)
    for sample in samples:
        values = {facts.symbols.get(name): number for name, number in sample.items()}
        try:
            result = substitute(canonical, values)
        except ShapeError:
            pytest.fail(f"{canonical} of {dim} divides by zero at {sample}")
        assert result == value(tree, sample)


@settings(max_examples=200, deadline=None)
@given(trees, trees, assignments)
def test_answers_without_facts(first: Tree, second: Tree, assignment: Assignment) -> None:
    facts = Facts()
    try:
        a, b = value(first, assignment), value(second, assignment)
        left, right = build(first, facts.symbols), build(second, facts.symbols)
    except (UndefinedError, ShapeError):
        assume(False)
        raise
    assert facts.same(left, right) == facts.prove_equal(left, right).yes
    _check(facts.prove_equal(left, right), [a == b])
    _check(facts.prove_less_equal(left, right), [a <= b])


@pytest.fixture
def facts() -> Facts:
    return Facts()


def test_equality_is_transitive_and_reaches_expressions(facts: Facts) -> None:
    b, s, t, n = map(facts.symbols.get, ("b", "s", "t", "n"))
    facts.assume_equal(t, s, "residual add")
    facts.assume_equal(dims.product([b, t, 768]), dims.mul(n, 768), "reshape")
    assert facts.canonical(n) == dims.mul(b, s)
    proof = facts.prove_equal(dims.mul(n, 2), dims.product([2, b, s]))
    assert proof.yes
    assert "reshape" in proof.reason and "n" in proof.reason


def test_linear_relations_are_solved_for_the_latest_symbol(facts: Facts) -> None:
    s, t = facts.symbols.get("s"), facts.symbols.get("t")
    facts.assume_equal(dims.mul(2, s), dims.sub(dims.mul(2, t), 6), "slice")
    assert facts.canonical(t) == dims.add(s, 3)
    assert facts.prove_one(t).no


def test_the_rest_of_a_solution_is_not_negative(facts: Facts) -> None:
    s, t = facts.symbols.get("s"), facts.symbols.get("t")
    facts.assume_equal(t, dims.sub(s, 4), "cut")
    assert facts.prove_less_equal(4, s).yes


def test_whole_expressions_are_merged_where_nothing_can_be_solved(facts: Facts) -> None:
    b, s = facts.symbols.get("b"), facts.symbols.get("s")
    facts.assume_equal(dims.mul(b, s), 512, "tokens")
    assert facts.prove_equal(dims.mul(s, b), 512).yes


def test_zero_and_one_are_extents(facts: Facts) -> None:
    b, s, t = map(facts.symbols.get, "bst")
    assert facts.prove_one(s).unknown
    assert facts.prove_equal(dims.mul(b, s), dims.mul(b, t)).unknown
    assert facts.prove_equal(s, 0).unknown
    assert facts.prove_equal(dims.add(s, 1), 0).no


def test_contradictions_are_errors(facts: Facts) -> None:
    s = facts.symbols.get("s")
    with pytest.raises(ShapeError, match=r"s.*s \+ 1.*concat"):
        facts.assume_equal(s, dims.add(s, 1), "concat")
    facts.assume_range(s, 2, 8, "hint")
    with pytest.raises(ShapeError):
        facts.assume_range(s, 9, None, "hint")
    with pytest.raises(ShapeError):
        facts.assume_equal(s, 1, "squeeze")


def test_ranges_decide_minima_and_ones(facts: Facts) -> None:
    s = facts.symbols.get("s")
    facts.assume_range(s, 2, 512, "hint")
    assert facts.canonical(dims.minimum(s, 512)) == s
    assert facts.prove_one(s).no
    assert "hint" in facts.prove_one(s).reason
    assert facts.canonical(dims.broadcast_dim(s, facts.symbols.get("t"))) == s


def test_a_range_of_one_value_is_an_equality(facts: Facts) -> None:
    s = facts.symbols.get("s")
    facts.assume_range(s, 3, 3, "hint")
    assert facts.canonical(dims.add(s, 1)) == 4


def test_ranges_of_what_is_not_linear_say_nothing_of_a_symbol(facts: Facts) -> None:
    s, t = facts.symbols.get("s"), facts.symbols.get("t")
    facts.assume_range(dims.mul(s, s), 4, 9, "squares")
    facts.assume_range(dims.mul(s, t), 4, 9, "pairs")
    assert facts.bounds(s) == facts.bounds(t) == Facts().bounds(s)
    assert facts.prove_less_equal(4, s).unknown


def test_multiples(facts: Facts) -> None:
    s, b = facts.symbols.get("s"), facts.symbols.get("b")
    assert facts.divides(s, dims.mul(b, s))
    assert facts.divides(2, dims.add(dims.mul(4, s), 6))
    assert not facts.divides(4, dims.add(dims.mul(4, s), 6))
    assert not facts.divides(4, dims.add(dims.mul(2, s), 6))
    facts.assume_equal(b, 6, "hint")
    assert facts.divides(3, dims.mul(b, s))


def test_parity(facts: Facts) -> None:
    s, t = facts.symbols.get("s"), facts.symbols.get("t")
    assert facts.prove_equal(dims.mul(2, s), dims.add(dims.mul(2, t), 1)).no


def test_shapes(facts: Facts) -> None:
    s, t = facts.symbols.get("s"), facts.symbols.get("t")
    assert facts.same_shape((s, 4), (s, 4))
    assert not facts.same_shape((s, 4), (t, 4))
    assert not facts.same_shape((s,), (s, 1))


def test_a_branch_keeps_what_it_learns(facts: Facts) -> None:
    s, t = facts.symbols.get("s"), facts.symbols.get("t")
    branch = facts.branch()
    branch.assume_equal(s, t, "then")
    assert branch.prove_equal(s, t).yes
    assert facts.prove_equal(s, t).unknown


def test_assumptions_are_kept_for_runs_to_check(facts: Facts) -> None:
    s, t = facts.symbols.get("s"), facts.symbols.get("t")
    facts.assume_equal(s, t, "add")
    facts.assume_equal(t, s, "known already")
    assert [(check.relation, check.reason) for check in facts.checks] == [(Relation.EQUAL, "add")]


def test_a_proof_is_no_truth_value(facts: Facts) -> None:
    with pytest.raises(TypeError):
        bool(facts.prove_one(1))
    assert facts.prove_one(1).answer is Answer.YES


def test_a_body_and_its_branches_know_what_the_graph_around_assumes(facts: Facts) -> None:
    s, t = facts.symbols.get("s"), facts.symbols.get("t")
    facts.assume_equal(s, t, "outside")
    body = facts.body()
    body.assume_equal(s, dims.mul(2, facts.symbols.get("u")), "inside")
    branch = body.branch()
    assert [check.reason for check in body.conditions()] == ["outside", "inside"]
    assert [check.reason for check in branch.conditions()] == ["outside", "inside"]
    assert not facts.body().checks


@settings(max_examples=400, deadline=None)
@given(facts_strategy, small_trees, st.integers(0, len(NAMES)))
def test_what_stands_for_a_dim_is_known_as_early(
    given_facts: list[tuple[str, Tree, Tree]], tree: Tree, inputs: int
) -> None:
    facts = Facts()
    for number, name in enumerate(NAMES):
        if number == inputs:
            facts.symbols.end_of_inputs()
        facts.symbols.get(name)
    try:
        for fact in given_facts:
            _assume(facts, fact)
        dim = build(tree, facts.symbols)
    except ShapeError:
        assume(False)
    for one in (dim, *facts.symbols.order):
        assert facts.symbols.lateness(facts.canonical(one)) <= facts.symbols.lateness(one)
