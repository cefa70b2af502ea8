"""Differential fuzzing: random graphs against onnxruntime.

A few fixed examples by default; `DVM_FUZZ_EXAMPLES=2000 pytest tests/end_to_end/test_random_graphs.py`
draws that many at random. A failing test prints the model's text with the dims and the command.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

import numpy as np
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis.strategies import sampled_from
from onnx.reference import ReferenceEvaluator

import dvm_graph
from dvm_graph.options import FALLBACKS
from tests.end_to_end.random_graphs import RandomModel, random_models
from tests.end_to_end.reference import Array, assert_all_close, known_dims, session

EXAMPLES = int(os.environ.get("DVM_FUZZ_EXAMPLES", "0"))
COMMAND = (
    f"DVM_FUZZ_EXAMPLES={EXAMPLES} " if EXAMPLES else ""
) + "python -m pytest tests/end_to_end/test_random_graphs.py"


@settings(
    max_examples=EXAMPLES or 300,
    derandomize=EXAMPLES == 0,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(random_models())
def test_equals_onnxruntime(case: RandomModel) -> None:
    _check(case, dvm_graph.Options())


@settings(
    max_examples=EXAMPLES or 100,
    derandomize=EXAMPLES == 0,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(random_models(), sampled_from(FALLBACKS[1:]))
def test_fallbacks_equal_onnxruntime(case: RandomModel, fallbacks: str) -> None:
    _check(case, dvm_graph.Options(fallbacks=fallbacks))


def _check(case: RandomModel, options: dvm_graph.Options) -> None:
    note(f"{case.text}\nreproduce with: {COMMAND}")
    model = dvm_graph.optimize(case.model, options)
    for dims in case.dims:
        feeds = case.feeds(dims)
        expected = _expected(case, dims, feeds)
        if expected is not None:
            note(f"running at {known_dims(feeds)}")
            assert_all_close(model.run(feeds), expected, case.reduction_length, case.precision)


def _expected(
    case: RandomModel, dims: Mapping[str, int], feeds: Mapping[str, Array]
) -> list[Array] | None:
    """What the reference gives; None where it refuses.

    Where an extent is 0 it is onnx's evaluator: onnxruntime keeps the shapes of empty operands of
    reductions, and refuses products that follow.
    """
    if 0 not in dims.values():
        return list(session(case.model).run(None, dict(feeds)))
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mean of nothing
            return list(ReferenceEvaluator(case.model).run(None, dict(feeds)))
    except ValueError:  # the maximum of nothing
        return None
