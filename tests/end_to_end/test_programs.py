"""Scripted models, whose loops, branches and lists ONNX keeps: each equals onnxruntime over dims, batches and courses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dvm_graph
from dvm_graph.options import Options
from dvm_graph.pipeline import Compiled, compile_model
from models import PROGRAMS, random_feeds, tiny_path
from tests.end_to_end.reference import assert_all_close, session
from tests.models.zoo_dims import grid

TERMS = 4096
"""Terms that one output of a tiny model sums, layer upon layer, to the order of magnitude."""
SEEDS = 4


def runs(name: str) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    for seed in range(SEEDS):
        for number, dims in enumerate(grid(name)):
            yield random_feeds(name, dims, seed + SEEDS * number)


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_onnxruntime(name: str) -> None:
    model, reference = dvm_graph.optimize(tiny_path(name)), session(str(tiny_path(name)))
    for feeds in runs(name):
        assert_all_close(model.run(feeds), reference.run(None, feeds), TERMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_left_to_onnxruntime(name: str) -> None:
    assert set(vendor_operators(compile_model(tiny_path(name), Options()))) == set()


def vendor_operators(compiled: Compiled) -> Iterator[str]:
    yield from (str(node.attrs["op"]) for node in compiled.graph.nodes if node.op == "vendor")
    for body in compiled.bodies.values():
        yield from vendor_operators(body)


def test_feeds_take_every_course() -> None:
    """Both networks of the detector, searches of several lengths, exits behind several layers."""
    assert {int(feeds["rate"]) for feeds in runs("voice_stream")} == {8000, 16000}
    for name, output, least in (("beam_search", "best", 4), ("early_exit", "layers_used", 3)):
        reference = session(str(tiny_path(name)))
        results = [reference.run([output], feeds)[0] for feeds in runs(name)]
        courses = {len(r) if name == "beam_search" else int(r[0]) for r in results}
        assert len(courses) >= least, (name, courses)
