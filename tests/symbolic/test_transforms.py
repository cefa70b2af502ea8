"""Which convolutions take transforms, at extents that no tensor has."""

from __future__ import annotations

import pytest

from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.transforms import transformed_slices


@pytest.mark.parametrize("height", [2**40, 2**63 - 1, 2**63 + 4])
def test_extents_beyond_all_tensors(height: int) -> None:
    window = {
        "kernel": (3, 3),
        "strides": (1, 1),
        "dilations": (1, 1),
        "size": (height, 8),
    }
    assert transformed_slices(window, 1, 9 * 16, 16, Facts()) == 1
