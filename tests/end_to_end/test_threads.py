"""Several threads run one model at once, each at its own shapes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import dvm_graph
from models import random_feeds, tiny_path
from tests.end_to_end.reference import assert_same_bits

SHAPES = ((1, 1), (3, 77), (8, 128), (2, 13), (1, 64), (5, 9))
ROUNDS = 8


@pytest.mark.parametrize("cores", [None, 1])
@pytest.mark.parametrize("name", ["bert", "qwen3_decode", "resnet", "nonzero", "crnn", "vad"])
def test_threads_get_the_answers_of_their_own_shapes(name: str, cores: int | None) -> None:
    """One behind the other, or with a core for each as many at a time as there are CPUs."""
    model = dvm_graph.optimize(tiny_path(name), cores=cores)
    feeds = [
        random_feeds(
            name,
            {"batch": b, "seq": s, "past_seq": s, "frames": s, "height": 32 + s, "width": 32 + s},
            seed,
            padded=True,
        )
        for seed, (b, s) in enumerate(SHAPES)
    ]
    expected = [model.run(feed) for feed in feeds]

    def work(index: int) -> None:
        for turn in range(ROUNDS):
            which = (index + turn * (index + 1)) % len(feeds)
            assert_same_bits(model.run(feeds[which]), expected[which])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, index) for index in range(4)]:
            done.result()


def test_a_profile_is_of_its_own_runs() -> None:
    """Whatever other threads run meanwhile."""
    model = dvm_graph.optimize(tiny_path("bert"), cores=1)
    feeds = [random_feeds("bert", {"batch": batch, "seq": 9}) for batch in (1, 2)]
    launched = {kernel.name for kernel in model.profile(feeds[0], repeats=1).kernels}
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            model.run(feeds[1])

    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(run) for _ in range(4)]
        try:
            profile = model.profile(feeds[0], repeats=300)
        finally:
            done.set()
        for other in others:
            other.result()
    assert {kernel.name for kernel in profile.kernels} == launched


def test_models_of_one_process_run_at_once() -> None:
    names = ("bert", "gpt2", "mmoe")
    compiled = {name: dvm_graph.optimize(tiny_path(name)) for name in names}
    feeds = {name: random_feeds(name, {"batch": 3, "seq": 21}) for name in names}
    expected = {name: compiled[name].run(feeds[name]) for name in names}

    def work(name: str) -> None:
        for _ in range(ROUNDS):
            assert_same_bits(compiled[name].run(feeds[name]), expected[name])

    with ThreadPoolExecutor(len(names)) as pool:
        for done in [pool.submit(work, name) for name in names * 2]:
            done.result()


def test_optimize_in_several_threads() -> None:
    feeds = random_feeds("bert", {"batch": 2, "seq": 9})
    expected = dvm_graph.optimize(tiny_path("bert")).run(feeds)

    def work(_: int) -> None:
        assert_same_bits(dvm_graph.optimize(tiny_path("bert")).run(feeds), expected)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, index) for index in range(3)]:
            done.result()
