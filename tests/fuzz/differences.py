"""What operators give where onnxruntime's answer is not the one to expect: `docs/edge_values.md` as a table.

In: a node, its operands and what onnxruntime makes of them. Out: the results as documented, and which of
their elements anything may be: where the documents promise no number, or only one of two. Elements, not
operators or models: whatever else a model computes is compared.
"""

from __future__ import annotations

from tests.fuzz import (  # noqa: F401 - they register their differences
    differences_integers,
    differences_sums,
    differences_values,
    differences_windows,
)
from tests.fuzz.documented import DIFFERENCES

__all__ = ["DIFFERENCES"]
