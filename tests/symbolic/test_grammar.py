"""Text forms of dims."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dvm_graph.symbolic import Symbols, dims, evaluate_dim_text, parse_dim
from tests.symbolic.trees import Tree, UndefinedError, assignments, value

SYMBOLS = Symbols()
S, B, U = SYMBOLS.get("s0"), SYMBOLS.get("batch"), SYMBOLS.get("u0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch", B),
        ("Min(512, s0)", dims.minimum(512, S)),
        ("Max(1, s0, batch)", dims.maximum(dims.maximum(1, S), B)),
        ("batch*s0", dims.mul(B, S)),
        ("s0//2", dims.floordiv(S, 2)),
        ("floor(s0/2 + 1)", dims.add(dims.floordiv(S, 2), 1)),
        ("floor(s0*0.5)", dims.floordiv(S, 2)),
        ("ceiling(s0/8)", dims.ceildiv(S, 8)),
        ("CeilToInt(IntTrueDiv(s0, 2))", dims.ceildiv(S, 2)),
        ("CeilDiv(s0, 8)", dims.ceildiv(S, 8)),
        ("FloorDiv(s0 - 1, 3)", dims.floordiv(dims.sub(S, 1), 3)),
        ("(s0 + 1)", dims.add(S, 1)),
        ("-1 + u0", dims.sub(U, 1)),
        ("2*s0", dims.mul(2, S)),
        ("s0 - -1", dims.add(S, 1)),
        ("Mod(s0, 3)", dims.mod(S, 3)),
        ("PythonMod(s0, 3)", dims.mod(S, 3)),
        ("s0 % 3", dims.mod(S, 3)),
        ("ModularIndexing(s0, 2, 3)", dims.mod(dims.floordiv(S, 2), 3)),
        ("s0**2", dims.mul(S, S)),
        ("2**3", 8),
        ("-s0**2 + 2*s0", dims.sub(dims.mul(2, S), dims.mul(S, S))),
        ("2*s0/2", S),
        ("512", 512),
    ],
)
def test_reads(text: str, expected: object) -> None:
    assert parse_dim(text, SYMBOLS) == expected


@pytest.mark.parametrize(
    "text",
    [
        "N x 3", "wat(", "a)", "Foo(a)", "a/3", "2a", "a**b", "a**99", "1/0", "Min()", "a+",
        "__import__('os').system('true')", "(" * 600 + "a" + ")" * 600, "(" * 100 + "a" + ")" * 100,
        "99999999999999999999*a", "((((a+b)**8+c)**8+d)**8+e)**8", "Mod(a, b, c)", "a;b",
    ],
)  # fmt: skip
def test_other_text_is_a_symbol_of_that_name(text: str) -> None:
    symbols = Symbols()
    dim = parse_dim(text, symbols)
    assert dim == symbols.get(text)
    assert symbols.order == [dim]


@pytest.mark.parametrize("name", ["seq.len", "batch-size", "unk__123", "höhe", "a:0", "s77"])
def test_names(name: str) -> None:
    assert parse_dim(name, Symbols()).name == name


def test_nameless_dims_are_different() -> None:
    symbols = Symbols()
    assert parse_dim("?", symbols) != parse_dim("?", symbols)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab12 +-*/()%,.MinaxFlor_", max_size=30))
def test_never_fails(text: str) -> None:
    parse_dim(text, Symbols())
    assert evaluate_dim_text(text, {"a": 3, "b": 0}, default=2) >= 0


_FORMS = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "{}*{}", "floordiv": "(({})//({}))",
    "ceildiv": "CeilDiv({}, {})", "mod": "Mod({}, {})", "minimum": "Min({}, {})",
    "maximum": "Max({}, {})",
}  # fmt: skip
_leaves = st.one_of(st.sampled_from("abc"), st.integers(0, 12))
_trees = st.recursive(
    _leaves, lambda t: st.tuples(st.sampled_from(sorted(_FORMS)), t, t), max_leaves=5
)


def _text(tree: Tree) -> str:
    if not isinstance(tree, tuple):
        return str(tree)
    return _FORMS[tree[0]].format(*(f"({_text(operand)})" for operand in tree[1:]))


@settings(max_examples=300, deadline=None)
@given(_trees, assignments)
def test_text_means_what_python_says(tree: Tree, assignment: dict[str, int]) -> None:
    try:
        expected = value(tree, assignment)
    except UndefinedError:
        return
    text = _text(tree)
    if text not in assignment and expected >= 0:
        assert evaluate_dim_text(text, assignment, default=-1) == expected


@settings(max_examples=200, deadline=None)
@given(_trees, assignments)
def test_printed_dims_are_read_back(tree: Tree, assignment: dict[str, int]) -> None:
    symbols = Symbols()
    dim = parse_dim(_text(tree), symbols)
    assert parse_dim(str(dim), symbols) == dim


def test_signs_are_those_of_products() -> None:
    symbols = Symbols()
    text = "-(a + b)*((-a)//b)"
    assert str(parse_dim(text, symbols)) == text


def test_values_of_text() -> None:
    assert evaluate_dim_text("batch*seq", {"batch": 3, "seq": 5}, default=2) == 15
    assert evaluate_dim_text("batch*seq", {"batch": 3}, default=2) == 6
    assert evaluate_dim_text("batch - 9", {"batch": 3}, default=2) == 2
    assert evaluate_dim_text("N x 3", {"N x 3": 4}, default=2) == 4
