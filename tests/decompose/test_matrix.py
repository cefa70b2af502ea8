"""Matrix products, Einsum and attention against onnxruntime or onnx's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import dvm_graph
from tests.decompose.evaluate import evaluate
from tests.decompose.reference import Case, Tensor, check, decomposed, vendor_operators
from tests.tolerances import assert_close

PRODUCTS = [
    Case("MatMul", [Tensor(("n", "k")), Tensor(("k", "m"))]),
    Case("MatMul", [Tensor(("k",)), Tensor(("k", "m"))]),
    Case("MatMul", [Tensor(("b", "n", "k")), Tensor(("k",))], empty=False),
    Case("MatMul", [Tensor(("k",)), Tensor(("k",))]),
    Case("MatMul", [Tensor(("b", 1, "n", "k")), Tensor((4, "k", "m"))], empty=False),
    Case("MatMul", [Tensor(("n", "k"), "int32"), Tensor(("k", "m"), "int32")]),
    Case("Gemm", [Tensor(("n", "k")), Tensor(("k", "m")), Tensor(("m",))]),
    Case("Gemm", [Tensor(("n", "k")), Tensor(("k", "m"))]),
    Case(
        "Gemm",
        [Tensor(("k", "n")), Tensor(("m", "k")), Tensor((1, 1))],
        {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1},
        empty=False,
    ),
]
EINSUMS = [
    ("ij,jk->ik", ("n", "k"), ("k", "m")),
    ("bij,bkj->bik", ("b", "n", "k"), ("b", "m", "k")),
    ("bhid,bhjd->bhij", ("b", "h", "n", 4), ("b", "h", "m", 4)),
    ("bihd,bjhd->bhij", ("b", "n", "h", 4), ("b", "m", "h", 4)),
    ("i,j->ij", ("n",), ("m",)),
    ("ij,ij->", ("n", "m"), ("n", "m")),
    ("ij,k->i", ("n", "m"), ("k",)),
    ("ij->ji", ("n", "m")),
    ("ijk->j", ("n", "m", "k")),
    ("...ij,...jk->...ik", ("b", "n", "k"), ("b", "k", "m")),
    ("ij,jk", ("n", "k"), ("k", "m")),
    ("ij,jk,kl->il", ("n", "k"), ("k", "m"), ("m", 3)),
    ("abc,cd->abd", ("n", "m", "k"), ("k", 5)),
    ("ij,jk->ik", (3, 1), ("n", "k")),
    ("ij,jk->ik", ("n", "k"), (1, 4)),
    ("bij,bkj->ik", (1, "n", 1), (2, "k", 5)),
    ("ij,jk,jl->il", ("n", 1), (1, 4), (3, 2)),
    ("ij,ij->", ("n", 1), (1, "m")),
]


@pytest.mark.parametrize("case", PRODUCTS, ids=str)
def test_products_equal_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("equation, shapes", [(e, s) for e, *s in EINSUMS])
def test_einsum_equals_onnxruntime(equation: str, shapes: list[tuple[Any, ...]]) -> None:
    check(Case("Einsum", [Tensor(s) for s in shapes], {"equation": equation}, empty=False))


SPREAD = [
    ("ij,jk->ik", (5, 1), (3, 4)),
    ("ij,jk->ik", (5, 3), (1, 4)),
    ("ij,jk->ik", (5, 3), (3, 4)),
    ("abc,abc->a", (2, 3, 4), (2, 1, 4)),
    ("abc,abc->a", (2, 1, 4), (1, 3, 1)),
    ("bij,bjk->bik", (1, 5, 3), (2, 1, 4)),
]


@pytest.mark.parametrize(("equation", "a", "b"), SPREAD)
def test_einsum_spreads_what_a_run_finds_to_be_1(
    equation: str, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    generator = np.random.default_rng(0)
    x, y = (generator.standard_normal(shape, np.float32) for shape in (a, b))
    (result,) = einsum_of_any(equation, x, y)
    wide = np.einsum(equation, x.astype(np.float64), y.astype(np.float64))
    assert_close(result, wide.astype(np.float32), np.float32, 12)


def einsum_of_any(equation: str, *arrays: Any) -> Any:
    """Of operands all of whose extents are unlike by name."""
    names = [tuple(f"d{i}{at}" for at in range(x.ndim)) for i, x in enumerate(arrays)]
    model = Case("Einsum", [Tensor(dims) for dims in names], {"equation": equation}).model()
    feeds = {value.name: x for value, x in zip(model.graph.input, arrays, strict=True)}
    return dvm_graph.optimize(model, strict=True).run(feeds)


def test_einsum_contracts_equal_extents_only() -> None:
    """Not what only has as many elements."""
    x, y = np.ones((2, 3, 4), np.float32), np.ones((2, 4, 3), np.float32)
    with pytest.raises(dvm_graph.ShapeError):
        einsum_of_any("abc,abc->a", x, y)


def test_einsum_with_a_diagonal_is_left_to_the_vendor() -> None:
    case = Case("Einsum", [Tensor((3, 3))], {"equation": "ii->i"})
    assert vendor_operators(decomposed(case.model())) == ["Einsum"]


QUERY = Tensor(("b", 4, "s", 8))
KEY = Tensor(("b", 4, "t", 8))
SHARED = Tensor(("b", 2, "t", 8))
PAST = Tensor(("b", 2, "p", 8))
FLAT_QUERY, FLAT_KEY = Tensor(("b", "s", 32)), Tensor(("b", "t", 16))
FLAGS = Tensor(("s", "t"), "bool")
ATTENTIONS = [
    Case("Attention", [QUERY, KEY, KEY], opset=23),
    Case("Attention", [QUERY, SHARED, SHARED], {"scale": 0.3}, opset=23),
    Case("Attention", [QUERY, QUERY, QUERY], {"is_causal": 1}, opset=23),
    Case("Attention", [QUERY, KEY, KEY, Tensor(("s", "t"))], {"softcap": 2.0}, opset=23),
    Case("Attention", [QUERY, KEY, KEY, FLAGS], opset=24),
    Case("Attention", [QUERY, SHARED, SHARED, Tensor(("b", 1, "s", "t"), "bool")], opset=24),
    Case(
        "Attention",
        [FLAT_QUERY, FLAT_KEY, FLAT_KEY],
        {"q_num_heads": 4, "kv_num_heads": 2},
        opset=23,
    ),
    Case(
        "Attention",
        [QUERY, Tensor(("b", 2, "s", 8)), Tensor(("b", 2, "s", 8)), None, PAST, PAST],
        {"is_causal": 1},
        outputs=3,
        opset=24,
    ),
    Case(
        "Attention",
        [Tensor(("b", 4, 1, 8)), SHARED, SHARED, None, PAST, PAST],
        {"is_causal": 1},
        outputs=3,
        opset=24,
    ),
    Case(
        "Attention",
        [QUERY, KEY, KEY, None, None, None, Tensor(("b",), "int64", 1, 3)],
        opset=24,
    ),
    Case("Attention", [QUERY, KEY, KEY], {"qk_matmul_output_mode": 3}, outputs=4, opset=24),
    Case(
        "Attention",
        [QUERY, QUERY, QUERY],
        {"left_window_size": 1, "right_window_size": 0},
        opset=25,
    ),
]
HALF = Tensor(("b", "s", 4), low=-1, high=1)
TABLE = np.linspace(-1, 1, 40, dtype=np.float32).reshape(10, 4)
IDS = Tensor(("b", "s"), "int64", 0, 10)
ROTARY = [
    Case("RotaryEmbedding", [QUERY, HALF, HALF], opset=23),
    Case("RotaryEmbedding", [QUERY, HALF, HALF], {"interleaved": 1}, opset=23),
    Case("RotaryEmbedding", [QUERY, TABLE, TABLE, IDS], opset=23),
    Case(
        "RotaryEmbedding", [Tensor(("b", "s", 32)), TABLE, TABLE, IDS], {"num_heads": 4}, opset=23
    ),
    Case(
        "RotaryEmbedding",
        [Tensor(("b", 2, "s", 12)), HALF, HALF],
        {"rotary_embedding_dim": 8},
        opset=23,
    ),
]


@pytest.mark.parametrize("case", ATTENTIONS + ROTARY, ids=str)
def test_attention_equals_the_onnx_reference(case: Case) -> None:
    model = case.model()
    graph = decomposed(model)
    assert not vendor_operators(graph)
    reference = ReferenceEvaluator(model)
    several = {name: 2 + index for index, name in enumerate(case.symbols)}
    for seed, dims in enumerate((several, dict.fromkeys(case.symbols, 1))):
        generator = np.random.default_rng(seed)
        feeds = {
            f"x{index}": value.draw(generator, dims)
            for index, value in enumerate(case.operands)
            if isinstance(value, Tensor)
        }
        expected = reference.run(None, feeds)
        for result, wanted in zip(evaluate(graph, feeds), expected, strict=True):
            assert_close(result, np.asarray(wanted, result.dtype), reduction_length=100)


def test_a_query_that_sees_no_key_gives_zeros() -> None:
    mask = np.array([[True, False], [False, False]])
    case = Case("Attention", [*[Tensor((1, 1, 2, 4))] * 3, mask], opset=24)
    feeds = {f"x{i}": np.ones((1, 1, 2, 4), np.float32) for i in range(3)}
    (y,) = evaluate(decomposed(case.model()), feeds)
    np.testing.assert_array_equal(y[0, 0], [[1] * 4, [0] * 4])
