"""A result beside what it may be: what is wrong with it, in words and numbers."""

from __future__ import annotations

import numpy as np

from dvm_graph.check.bounded import Bounded, differs
from dvm_graph.check.findings import Subject
from dvm_graph.ir import Array


def compare(got: Array, wanted: Bounded, subject: Subject) -> tuple[str, float]:
    """What is wrong with a result, or "", and its largest error; counts for the subject."""
    wrong = differs(got, wanted)
    decided = np.isfinite(wanted.errors)
    subject.elements += got.size
    subject.open += int(got.size - decided.sum())
    error = 0.0
    if got.size and got.dtype.kind != "b":
        with np.errstate(all="ignore"):
            gap = np.abs(got.astype(np.float64) - wanted.value.astype(np.float64))
            sure = np.isfinite(gap) & decided
            error = float(np.max(gap, where=sure, initial=0.0))
            part = gap / wanted.errors
            used = float(np.max(part, where=sure & (wanted.errors > 0), initial=0.0))
        if not wrong.any():
            subject.error = max(subject.error, error)
            subject.bound = max(subject.bound, used)
    if not wrong.any():
        return "", error
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    text = (
        f"is wrong in {int(wrong.sum())} of {wrong.size} elements: at {list(at)} "
        f"{got[at]}, but {wanted.value[at]} within {wanted.errors[at]:.1e}"
    )
    return text, error
