"""Nothing is found in random models that are compiled as they should be."""

from __future__ import annotations

import pytest

from dvm_graph.check import validate
from dvm_graph.errors import DvmError
from dvm_graph.options import FusionLimits, Options
from tests.fuzz.case import generate

VARIANTS = (
    Options(),
    Options(limits=FusionLimits(weigh_resident=False)),
    Options(limits=FusionLimits(max_operators=4, max_accesses=3)),
    Options(local_bytes=16 << 10),
)


@pytest.mark.parametrize("index", range(40))
def test_models_from_the_schemas(index: int) -> None:
    case = generate(1, index)
    try:
        report = validate(case.model, VARIANTS[index % len(VARIANTS)], feeds=case.feeds[0])
    except DvmError:
        pytest.skip("what cannot be compiled runs on onnxruntime: tests/test_rescue.py")
    assert report.findings == [], case.text
