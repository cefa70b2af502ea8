"""A selection of the corpus: values of the host in any order of queues, and flags that are missed where they are missing.

`make audit-npu` examines all of it.
"""

from __future__ import annotations

import pytest
from onnx import parser

from dvm_graph.backend.conformance import node_tests
from tests.npu.corpus import Case, Counts, examine, models, node_cases
from tests.npu.test_part_values import DIMS, GRAPHS, HEAD, feeds

EVERY = 60
"""Of the node tests, one in so many."""
OF_MODELS = ("mmoe", "deepfm", "squeezenet")
LEAST_SEEN = 0.75
"""Of the flags, all of which order what no others do, those whose absence shows in the numbers: some only keep apart
what happens to hold the same, or what addresses between them would keep apart."""


@pytest.mark.parametrize("name", GRAPHS)
def test_flags_of_graphs(name: str) -> None:
    counts = examine(
        Case(name, parser.parse_model(HEAD + GRAPHS[name]), lambda: feeds(name, DIMS[0]))
    )
    assert counts is not None
    _hold(counts)


@pytest.mark.parametrize("case", [case for case in models() if case.name in OF_MODELS], ids=str)
def test_flags_of_models(case: Case) -> None:
    counts = examine(case)
    assert counts is not None
    _hold(counts)


def test_flags_of_node_tests() -> None:
    total = Counts()
    for case in node_cases(node_tests()[::EVERY]):
        total.add(examine(case) or Counts())
    assert total.cases > 20 and total.cases > total.vendor
    _hold(total)


def _hold(counts: Counts) -> None:
    assert counts.unordered == counts.waits, "a flag is spare: others order as much"
    assert counts.seen >= LEAST_SEEN * counts.waits > 0
