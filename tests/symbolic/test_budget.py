"""Dims stay small: what a model can make of them is bounded, and large ones still have their value."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence

import pytest

from dvm_graph.symbolic import DimTable, Facts, Symbols, dims, evaluate
from dvm_graph.symbolic import expressions as forms
from dvm_graph.symbolic.dims import MAX_TERMS, MAX_WEIGHT, opaque_leaves
from dvm_graph.symbolic.facts import Answer
from dvm_graph.symbolic.polynomial import Dim, polynomial
from tests.symbolic.trees import MEANING


def nodes(dim: Dim) -> int:
    """Operators and leaves."""
    return 1 if isinstance(dim, int) else 1 + sum(nodes(arg) for arg in dim.args)


def total(symbols: list[Dim]) -> Dim:
    result: Dim = 0
    for symbol in symbols:
        result = dims.add(result, symbol)
    return result


def halves(dim: Dim) -> Dim:
    """What a tensor and every other row of it have together: mentions its operand twice."""
    return dims.add(dim, dims.ceildiv(dims.add(dim, 1), 2))


def squares(dim: Dim) -> Dim:
    return dims.mul(dims.add(dim, 1), dim)


def clamps(dim: Dim) -> Dim:
    return dims.maximum(dims.minimum(dim, 5), dims.sub(dim, dims.minimum(dim, 3)))


@pytest.mark.parametrize("grow", [halves, squares, clamps])
def test_repeated_operations_make_no_large_dims(grow: Callable[[Dim], Dim]) -> None:
    symbols = Symbols()
    dim = total([symbols.get(f"n{i}") for i in range(200)])
    for _ in range(50):
        dim = grow(dim)
        assert nodes(dim) <= 20 * MAX_WEIGHT
        assert len(polynomial(dim)) <= MAX_WEIGHT * MAX_TERMS
        assert len(str(dim)) <= 200 * MAX_WEIGHT
    assert dims.symbols_of(dim) == set(symbols.order)
    assert opaque_leaves(dim)


NAMES = [f"n{i}" for i in range(7)]
OPERATIONS = [name for name in MEANING if name not in ("broadcast_dim", "select")]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_opaque_has_its_value(seed: int) -> None:
    """Random programs over their own results, long enough to pass the budget many times."""
    choose = random.Random(seed)
    symbols = Symbols()
    given = {name: choose.randint(0, 9) for name in NAMES}
    built: list[Dim] = [symbols.get(name) for name in NAMES]
    expected = list(given.values())
    for _ in range(400):
        name, a, b = choose.choice(OPERATIONS), *choose.choices(range(-20, 0), k=2)
        a, b = max(a, -len(built)), max(b, -len(built))
        if expected[b] == 0 and name.endswith(("div", "mod")):
            continue
        if abs(expected[a]) > 2**20 or abs(expected[b]) > 2**20:
            a, b = -len(built) + choose.randrange(7), -len(built) + choose.randrange(7)
            name = "add"
        built.append(getattr(dims, name)(built[a], built[b]))
        expected.append(MEANING[name](expected[a], expected[b]))
    table = DimTable()
    slots = [table.slot(dim) for dim in built]
    values = evaluate(table, [given[symbol.name] for symbol in table.symbols])
    assert [values[slot] for slot in slots] == expected
    numbers = {symbols.get(name): number for name, number in given.items()}
    assert dims.substitute(built[-1], numbers) == expected[-1]
    assert any(opaque_leaves(dim) for dim in built)


def test_the_same_large_dims_are_equal() -> None:
    symbols = Symbols()
    terms = [symbols.get(f"n{i}") for i in range(500)]
    first, second, other = total(terms), total(terms), total(terms[:-1])
    assert Facts(symbols).prove_equal(first, second).answer is Answer.YES
    assert Facts(symbols).prove_equal(first, other).answer is Answer.UNKNOWN


def test_programs_of_deeply_nested_dims_are_made_without_recursion() -> None:
    symbols = Symbols()
    dim: Dim = symbols.get("n")
    for _ in range(40):
        for _ in range(sys.getrecursionlimit() // 40):
            dim = dims.minimum(dims.floordiv(dims.mul(dim, 3), 2), 1000)
    leaves = opaque_leaves(dim)
    assert len(leaves) > 20
    assert all(isinstance(leaf, forms.Opaque) for leaf in leaves)
    table = DimTable()
    slot = table.slot(dim)
    value = 5
    for _ in range(40 * (sys.getrecursionlimit() // 40)):
        value = min(3 * value // 2, 1000)
    assert evaluate(table, [5])[slot] == value


@pytest.mark.parametrize("seed", range(5))
def test_nested_floor_divisions_collapse(seed: int) -> None:
    """(x//a + c)//b is (x + a*c)//(a*b): one division is left of any number of them."""
    choose = random.Random(seed)
    symbols = Symbols()
    symbol = symbols.get("n")
    dim, steps = symbol, [(choose.randint(-3, 3), choose.randint(1, 4)) for _ in range(6)]
    for shift, divisor in steps:
        dim = dims.floordiv(dims.add(dim, shift), divisor)
    assert (
        isinstance(dim, int) or len({p for p in dim.parts() if isinstance(p, forms.FloorDiv)}) <= 1
    )
    for number in range(300):
        value = number
        for shift, divisor in steps:
            value = (value + shift) // divisor
        assert dims.substitute(dim, {symbol: number}) == value


def test_an_extent_rounded_up_by_halving_reads_as_such() -> None:
    symbols = Symbols()
    dim: Dim = symbols.get("p")
    for _ in range(5):
        dim = dims.ceildiv(dim, 2)
    assert str(dims.mul(32, dim)) == "32*((p + 31)//32)"


def test_another_extremum_in_a_sum_of_many_costs_a_few_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    symbols, sums, total_of = Symbols(), [0], forms.total

    def counted(terms: Sequence[Dim]) -> Dim:
        sums[0] += 1
        return total_of(terms)

    dim: Dim = 0
    for count in range(30):
        sums[0] = 0
        choose = dims.minimum if count % 2 else dims.maximum
        extremum = choose(symbols.get(f"a{count}"), symbols.get(f"b{count}"))
        with monkeypatch.context() as patched:
            patched.setattr(forms, "total", counted)
            dim = dims.add(dim, extremum)
    assert sums[0] < 10
