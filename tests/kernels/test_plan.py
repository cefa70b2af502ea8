"""The records of a plan, against the table that C++ has them from."""

from __future__ import annotations

from dataclasses import fields

from dvm_graph import _core
from dvm_graph.kernels.plan import WINDOW_SIZES, Access, PlanNode


def test_records_have_the_fields_of_their_table() -> None:
    """`kernels/plan.def`, in its order: positions of C++ and Python are the same."""
    assert tuple(field.name for field in fields(PlanNode)) == _core.NODE_FIELDS
    assert tuple(field.name for field in fields(Access)) == _core.ACCESS_FIELDS
    assert WINDOW_SIZES == _core.WINDOW_SIZES
