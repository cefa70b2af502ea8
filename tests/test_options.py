"""Options that make no sense are refused when they are given, not noticed later or never."""

from __future__ import annotations

from typing import Any

import pytest

from dvm_graph import InputError, Options, optimize
from dvm_graph.options import FusionLimits
from models import tiny_path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cores": 0}, "cores is 0"),
        ({"cores": "2"}, "cores is '2'"),
        ({"local_bytes": -1}, "local_bytes is -1"),
        ({"local_bytes": (1 << 30) + 1}, "cannot exceed 1 GiB"),
        ({"disable_passes": "simplify"}, "set of names"),
        ({"dim_hints": {"n": (5, 2)}}, r"n is in \(5, 2\)"),
        ({"dim_hints": {"n": 4}}, "n is in 4, but"),
        ({"dim_hints": {"n": ("a", "b")}}, "n is in .*low first"),
        ({"dim_hints": {"n": (-1, 2)}}, r"n is in \(-1, 2\)"),
    ],
)
def test_values_out_of_range(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Options(**options)


@pytest.mark.parametrize(
    "limits", [{"max_parallel": 0}, {"max_sequence": 0}, {"max_operators": -1}]
)
def test_limits_under_which_nothing_could_run(limits: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(limits))):
        FusionLimits(**limits)


def test_any_collection_of_passes_can_be_left_out() -> None:
    assert Options(disable_passes=["simplify"]).disable_passes == {"simplify"}


def test_what_the_machine_lacks() -> None:
    with pytest.raises(InputError, match="'no such level', but this machine has"):
        optimize(tiny_path("mmoe"), simd="no such level")
