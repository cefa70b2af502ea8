"""Shape functions against numpy, with extents of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dvm_graph.errors import ModelError, ShapeError
from dvm_graph.ir import DType, Graph, Node, Value
from dvm_graph.symbolic import Builder, Dim, Facts, Relation, dims, substitute

EXTENTS = st.integers(0, 4)


class Case:
    """Operands whose dims are symbols with known values."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.builder = Builder(Graph(), self.facts)
        self.values: dict[Any, int] = {}

    def dim(self, extent: int, symbolic: bool) -> Dim:
        """A dim of that value; equal extents do not share a symbol."""
        if not symbolic:
            return extent
        symbol = self.facts.symbols.fresh("s")
        self.values[symbol] = extent
        return symbol

    def operand(self, shape: Sequence[int], symbolic: Sequence[bool]) -> Value:
        axes = zip(shape, symbolic, strict=True)
        name = f"x{len(self.values)}"
        return Value(name, DType.FLOAT32, tuple(self.dim(extent, s) for extent, s in axes))

    def shape(self, value: Value) -> tuple[int, ...]:
        """The result's shape, in numbers; with equalities substituted it is the same."""
        assert value.shape is not None
        plain = tuple(substitute(dim, self.values) for dim in value.shape)
        canonical = tuple(self.facts.canonical(dim) for dim in value.shape)
        assert tuple(substitute(dim, self.values) for dim in canonical) == plain
        self.check_expectations()
        return plain

    def check_expectations(self) -> None:
        for check in self.facts.checks:
            left, right = (substitute(d, self.values) for d in (check.left, check.right))
            holds = {
                Relation.EQUAL: left == right,
                Relation.BROADCASTS: left == right or 1 in (left, right),
                Relation.BROADCASTS_TO: left in (1, right),
            }
            assert holds[check.relation], str(check)


flags = st.lists(st.booleans(), min_size=4, max_size=4)
shapes = st.lists(EXTENTS, max_size=4).map(tuple)


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    full = draw(shapes)
    first = tuple(draw(st.sampled_from((extent, 1))) for extent in full)
    second = tuple(draw(st.sampled_from((extent, 1))) for extent in full)
    return first[draw(st.integers(0, len(full))) :], second


@settings(max_examples=300, deadline=None)
@given(broadcastable(), flags, flags)
def test_broadcast(
    pair: tuple[tuple[int, ...], tuple[int, ...]], first: list[bool], second: list[bool]
) -> None:
    case = Case()
    a, b = (case.operand(s, f[: len(s)]) for s, f in zip(pair, (first, second), strict=True))
    assert case.shape(case.builder.add(a, b)) == np.broadcast_shapes(*pair)
    assert case.shape(case.builder.mul(b, a)) == np.broadcast_shapes(*pair)


@settings(max_examples=200, deadline=None)
@given(shapes, shapes)
def test_what_numpy_refuses_is_refused(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    case = Case()
    a, b = (case.operand(shape, [False] * len(shape)) for shape in (first, second))
    try:
        expected = np.broadcast_shapes(first, second)
    except ValueError:
        with pytest.raises(ShapeError):
            case.builder.add(a, b)
        return
    assert case.shape(case.builder.add(a, b)) == expected


@settings(max_examples=200, deadline=None)
@given(broadcastable(), EXTENTS, EXTENTS, EXTENTS, flags, flags)
def test_matmul(
    batch: tuple[tuple[int, ...], tuple[int, ...]],
    m: int,
    n: int,
    k: int,
    first: list[bool],
    second: list[bool],
) -> None:
    shape_a, shape_b = (*batch[0][:2], m, k), (*batch[1][:2], k, n)
    try:
        expected = np.matmul(np.zeros(shape_a), np.zeros(shape_b)).shape
    except ValueError:
        assume(False)
        raise
    case = Case()
    a = case.operand(shape_a, first[: len(shape_a)])
    b = case.operand(shape_b, second[: len(shape_b)])
    assert case.shape(case.builder.matmul(a, b)) == expected


@settings(max_examples=200, deadline=None)
@given(shapes, flags, st.data())
def test_views_and_reductions(shape: tuple[int, ...], symbolic: list[bool], data: Any) -> None:
    array = np.zeros(shape, np.float32)
    case = Case()
    x = case.operand(shape, symbolic[: len(shape)])
    builder, rank = case.builder, len(shape)
    perm = data.draw(st.permutations(range(rank)))
    assert case.shape(builder.transpose(x, perm)) == array.transpose(perm).shape
    axes = (
        data.draw(st.lists(st.integers(-rank, rank - 1), unique_by=lambda a: a % rank))
        if rank
        else []
    )
    assert case.shape(builder.reduce_sum(x, axes)) == array.sum(tuple(axes), keepdims=True).shape
    target = (3, *(extent if extent != 1 else 5 for extent in shape))
    wanted = tuple(
        case.dim(extent, s) for extent, s in zip(target, (True, *symbolic), strict=False)
    )
    assert case.shape(builder.broadcast_to(x, wanted)) == np.broadcast_to(array, target).shape
    index = Value("index", DType.INT64, (case.dim(2, True), 3))
    for axis in range(rank):
        expected = (*shape[:axis], 2, 3, *shape[axis + 1 :])
        assert case.shape(builder.gather(x, index, axis)) == expected
        parts = builder.concat([x, x, builder.reduce_max(x, [axis])], axis)
        assert case.shape(parts) == (*shape[:axis], 2 * shape[axis] + 1, *shape[axis + 1 :])


@settings(max_examples=200, deadline=None)
@given(shapes, flags, st.data())
def test_reshape(shape: tuple[int, ...], symbolic: list[bool], data: Any) -> None:
    case = Case()
    x = case.operand(shape, symbolic[: len(shape)])
    assert x.shape is not None
    cut = data.draw(st.integers(0, len(shape)))
    folded = (dims.product(x.shape[:cut]), 1, dims.product(x.shape[cut:]))
    expected = (int(np.prod(shape[:cut])), 1, int(np.prod(shape[cut:])))
    assert case.shape(case.builder.reshape(x, folded)) == expected
    total = case.dim(int(np.prod(shape)), True)
    assert case.shape(case.builder.reshape(x, (total,))) == (int(np.prod(shape)),)


def test_unknown_dims_broadcast_to_an_expression() -> None:
    case = Case()
    a, b = case.operand((3,), [True]), case.operand((1,), [True])
    result = case.builder.add(a, b)
    assert result.shape == (dims.broadcast_dim(*a.shape, *b.shape),)
    assert case.facts.prove_equal(a.shape[0], b.shape[0]).unknown


def test_that_a_dim_broadcasts_to_a_number_is_checked_once() -> None:
    """What a dim and a number broadcast to is the number, whoever asks for it."""
    case = Case()
    a = case.operand((1,), [True])
    case.builder.broadcast_to(a, (3,))
    case.builder.broadcast_to(a, (3,))
    (check,) = case.facts.checks
    assert (check.left, check.relation, check.right) == (a.shape[0], Relation.BROADCASTS_TO, 3)

    case = Case()
    a, b = case.operand((1,), [True]), case.operand((3,), [False])
    case.builder.broadcast_to(a, case.builder.add(a, b).shape)
    (check,) = case.facts.checks
    assert check.relation is Relation.BROADCASTS


def test_dims_that_cannot_be_one_are_equal_after_broadcast() -> None:
    case = Case()
    a, b = case.operand((3,), [True]), case.operand((3,), [True])
    for value in (a, b):
        case.facts.assume_range(value.shape[0], 2, None, "hint")
    case.builder.add(a, b)
    assert case.facts.same_shape(a.shape, b.shape)


def test_a_dim_that_broadcasts_with_its_own_cap_stays_below_it() -> None:
    """Position tables: the first min(seq, 512) rows are added to seq rows."""
    case = Case()
    x = case.operand((3, 8), [True, False])
    seq = x.shape[0]
    table = Value("table", DType.FLOAT32, (dims.minimum(seq, 512), 8))
    assert case.builder.add(x, table).shape == (seq, 8)
    assert case.facts.prove_less_equal(seq, 512).yes


def test_a_dim_that_broadcasts_with_its_own_cap_may_be_one_where_that_is_nothing() -> None:
    case = Case()
    x, pairs = case.operand((1, 8), [True, False]), case.dim(0, True)
    cap = dims.minimum(x.shape[0], dims.mul(2, pairs))
    table = Value("table", DType.FLOAT32, (cap, 8))
    assert case.shape(case.builder.add(x, table)) == (0, 8)


def test_matmul_makes_its_k_axes_equal() -> None:
    case = Case()
    a, b = case.operand((2, 0), [True, True]), case.operand((0, 4), [True, True])
    case.builder.matmul(a, b)
    assert case.facts.prove_equal(a.shape[1], b.shape[0]).yes


@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        ("add", [(3,), (4,)], {}),
        ("matmul", [(2, 3), (4, 5)], {}),
        ("matmul", [(3,), (3, 5)], {}),
        ("reshape", [(2, 3)], {"shape": (7,)}),
        ("transpose", [(2, 3)], {"perm": (0, 0)}),
        ("broadcast_to", [(2, 3)], {"shape": (2, 4)}),
        ("broadcast_to", [(2, 3)], {"shape": (3,)}),
        ("reduce_sum", [(2, 3)], {"axes": (2,)}),
        ("concat", [(2, 3), (3, 3)], {"axis": 1}),
        ("slice", [(4,)], {"starts": (1,), "steps": (1,), "sizes": (4,)}),
    ],
)
def test_contradictions_name_the_node_and_shapes(
    name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any]
) -> None:
    builder = Builder(Graph(), Facts())
    operands = [Value(f"x{i}", DType.FLOAT32, shape) for i, shape in enumerate(shapes)]
    node = Node("layer", "Add", (), (), origin=("encoder/layer.0",))
    with builder.scope(node), pytest.raises(ShapeError, match=r"encoder/layer\.0") as error:
        builder.op(name, *operands, **attrs)
    assert f"[{','.join(map(str, shapes[0]))}]" in str(error.value)


def test_operands_of_different_dtypes_are_refused() -> None:
    builder = Builder(Graph(), Facts())
    a, b = Value("a", DType.FLOAT32, (2,)), Value("b", DType.INT64, (2,))
    with pytest.raises(ModelError, match="element types"):
        builder.add(a, b)
    with pytest.raises(ModelError, match="not bool"):
        builder.select(a, a, a)
