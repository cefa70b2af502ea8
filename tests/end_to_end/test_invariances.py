"""What must not change the answer: fusion, stacking, cores, SIMD levels, local memory, history."""

from __future__ import annotations

import random

import pytest

import dvm_graph
from dvm_graph._core import simd_levels
from models import random_feeds, tiny_path
from tests.end_to_end.reference import Array, assert_all_close, assert_same_bits, model_from_text

NAMES = ("bert", "llama_decode", "qwen3", "mmoe", "vit")
TERMS = 4096
"""As in test_tiny_models."""
SHAPES = ((1, 1), (3, 77), (8, 128), (2, 13))


def grid(name: str) -> list[dict[str, Array]]:
    """Feeds at a few dims; every dim a model may have is named."""
    return [
        random_feeds(name, {"batch": batch, "seq": seq, "past_seq": seq}, seed, padded=True)
        for seed, (batch, seq) in enumerate(SHAPES)
    ]


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def feeds(name: str) -> list[dict[str, Array]]:
    return grid(name)


@pytest.fixture(scope="module")
def expected(name: str, feeds: list[dict[str, Array]]) -> list[list[Array]]:
    """The answers of a model with the default options."""
    model = dvm_graph.optimize(tiny_path(name))
    return [model.run(feed) for feed in feeds]


def results(
    name: str, feeds: list[dict[str, Array]], options: dvm_graph.Options
) -> list[list[Array]]:
    model = dvm_graph.optimize(tiny_path(name), options)
    return [model.run(feed) for feed in feeds]


@pytest.mark.parametrize(
    "options",
    [
        dvm_graph.Options(fuse=False),
        dvm_graph.Options(stack=False),
        dvm_graph.Options(fuse=False, stack=False),
        dvm_graph.Options(local_bytes=16 << 10),
        dvm_graph.Options(local_bytes=48 << 10),
        dvm_graph.Options(cores=3),
        dvm_graph.Options(limits=dvm_graph.FusionLimits(max_operators=4, max_accesses=3)),
        dvm_graph.Options(disable_passes=frozenset(("simplify", "absorb_views"))),
        dvm_graph.Options(fallbacks="always"),
        dvm_graph.Options(fallbacks="operators"),
        dvm_graph.Options(fallbacks="operators", local_bytes=16 << 10),
    ],
    ids=(
        *("unfused", "unstacked", "plain", "16K", "48K", "3 cores", "small kernels", "no passes"),
        *("fallbacks", "operators", "operators, 16K"),
    ),
)
def test_options_do_not_change_the_answer(
    name: str,
    feeds: list[dict[str, Array]],
    expected: list[list[Array]],
    options: dvm_graph.Options,
) -> None:
    for mine, theirs in zip(results(name, feeds, options), expected, strict=True):
        assert_all_close(mine, theirs, TERMS)


@pytest.mark.parametrize("level", simd_levels())
def test_simd_levels_agree(
    name: str, feeds: list[dict[str, Array]], expected: list[list[Array]], level: str
) -> None:
    options = dvm_graph.Options(simd=level)
    for mine, theirs in zip(results(name, feeds, options), expected, strict=True):
        assert_all_close(mine, theirs, TERMS)


def test_a_smaller_local_memory_changes_the_schedule() -> None:
    feeds = grid("bert")[1]
    small = dvm_graph.optimize(tiny_path("bert"), local_bytes=16 << 10)
    usual = dvm_graph.optimize(tiny_path("bert"))
    assert small.disassemble(feeds) != usual.disassemble(feeds)


def test_a_run_repeats_bit_by_bit(name: str, feeds: list[dict[str, Array]]) -> None:
    model = dvm_graph.optimize(tiny_path(name))
    for feed in feeds:
        assert_same_bits(model.run(feed), model.run(feed))


def test_a_reused_model_equals_a_fresh_one(
    name: str, feeds: list[dict[str, Array]], expected: list[list[Array]]
) -> None:
    model = dvm_graph.optimize(tiny_path(name))
    for index in random.Random(0).choices(range(len(feeds)), k=12):
        fresh = dvm_graph.optimize(tiny_path(name)).run(feeds[index])
        assert_same_bits(model.run(feeds[index]), fresh)
        assert_same_bits(fresh, expected[index])


ROWS = model_from_text(
    """rows (float[batch, width] x) => (float[batch, width] y, float[batch] z)
    <int64[1] last = {-1}>
    {
        s = Softmax<axis = -1>(x)
        y = Tanh(s)
        q = Mul(x, y)
        z = ReduceSum<keepdims = 0>(q, last)
    }"""
)


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (257, 64), (33, 1000)])
def test_one_core_equals_many_where_each_row_is_summed_by_one(shape: tuple[int, int]) -> None:
    import numpy as np

    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    one = dvm_graph.optimize(ROWS, cores=1).run({"x": x})
    for cores in (2, 5):
        many = dvm_graph.optimize(ROWS, cores=cores).run({"x": x})
        assert_same_bits(many, one)
