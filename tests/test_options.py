"""Options that make no sense are refused when they are given, not noticed later or never."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dvm_graph import InputError, Options, optimize
from dvm_graph.options import FusionLimits
from models import tiny_path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cores": 0}, "cores is 0"),
        ({"cores": "2"}, "cores is '2'"),
        ({"cores": True}, "cores is True"),
        ({"cores": 1.5}, "cores is 1.5"),
        ({"cores": 10**30}, "cores is 10"),
        ({"strict": 1}, "strict is 1, but has to be True or False"),
        ({"fuse": None}, "fuse is None"),
        ({"simd": 512}, "simd is 512, but has to be a string"),
        ({"precision": ["f32"]}, "precision is"),
        ({"dump": b"folder"}, "dump is b'folder'"),
        ({"disable_passes": {"simplify": True}}, "set of names"),
        ({"disable_passes": 3}, "set of names"),
        ({"disable_passes": [1]}, "set of names"),
        ({"limits": {"max_operators": 3}}, "limits is .*, but has to be FusionLimits"),
        ({"dim_hints": [("n", (1, 2))]}, "mapping of names to ranges"),
        ({"dim_hints": {1: (1, 2)}}, "mapping of names to ranges"),
        ({"dim_hints": {"n": (True, 2)}}, "n is in"),
        ({"max_compile_seconds": float("nan")}, "max_compile_seconds is nan"),
        ({"max_compile_seconds": -1}, "max_compile_seconds is -1"),
        ({"max_compile_seconds": "1 h"}, "max_compile_seconds is '1 h'"),
        ({"max_compile_bytes": -1}, "max_compile_bytes is -1"),
        ({"max_nodes": 0}, "max_nodes is 0"),
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
    "limits",
    [
        {"max_parallel": 0},
        {"max_sequence": 0},
        {"max_operators": -1},
        {"max_operators": 2.0},
        {"max_operators": 2**80},
        {"max_accesses": None},
        {"row_resident": 1},
    ],
)
def test_limits_under_which_nothing_could_run(limits: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(limits))):
        FusionLimits(**limits)


def test_any_collection_of_passes_can_be_left_out() -> None:
    assert Options(disable_passes=["simplify"]).disable_passes == {"simplify"}


def test_what_the_machine_lacks() -> None:
    with pytest.raises(InputError, match="'no such level', but this machine has"):
        optimize(tiny_path("mmoe"), simd="no such level")


def test_unknown_options_name_the_nearest() -> None:
    with pytest.raises(InputError, match="no option 'strct'; did you mean 'strict'"):
        optimize(tiny_path("mmoe"), strct=True)


def test_options_are_options() -> None:
    with pytest.raises(InputError, match=r"options are dvm_graph\.Options, not a dict"):
        optimize(tiny_path("mmoe"), {"strict": True})


def test_integers_of_numpy_are_integers() -> None:
    options = Options(cores=np.int32(2), dim_hints={"n": (np.int64(1), 2)})
    assert type(options.cores) is int
