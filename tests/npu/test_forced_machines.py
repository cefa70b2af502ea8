"""Another machine's numbers change how kernels are cut, and never what they compute."""

from __future__ import annotations

import pytest

import dvm_graph
from dvm_graph.npu.machine import VARIABLE, families
from models import tiny_path

DIMENSIONS = {
    "bert": {"batch": 3, "seq": 37},
    "llama": {"batch": 3, "seq": 37},
    "mobilenet": {"batch": 3, "height": 37, "width": 33},
    "unet": {"batch": 1, "height": 32, "width": 48},
}


@pytest.mark.parametrize("family", families())
@pytest.mark.parametrize("name", DIMENSIONS)
def test_answers_stay_right(name: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, family)
    assert dvm_graph.compare(tiny_path(name), dims=DIMENSIONS[name]).passed
