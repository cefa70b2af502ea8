"""What the compiler does as its input grows, counted: how many lines of Python it runs, which no other process disturbs."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import dvm_graph

_PACKAGE = str(Path(dvm_graph.__file__).parent)
_SHARE = 0.03
"""Of all lines, those of a function that says nothing."""


def lines_by_function(call: Callable[[], object], inside: str = _PACKAGE) -> Counter[str]:
    """How many lines of each function of a folder a call runs, those of comprehensions once for each element."""
    counts: Counter[CodeType] = Counter()

    def in_frame(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            counts[frame.f_code] += 1
        return in_frame

    def traced(frame: FrameType, _event: str, _argument: Any) -> Any:
        return in_frame if frame.f_code.co_filename.startswith(inside) else None

    before = sys.gettrace()
    gc.collect()
    sys.settrace(traced)
    try:
        call()
    finally:
        sys.settrace(before)
    lines: Counter[str] = Counter()
    for code, count in counts.items():
        lines[f"{Path(code.co_filename).name}:{code.co_firstlineno}:{code.co_name}"] += count
    return lines


def grown(
    make: Callable[[int], Callable[[], object]], small: int, factor: int = 4, slack: float = 1.6
) -> dict[str, tuple[int, int]]:
    """Functions that run more than `factor * slack` times as many lines on what is `factor` times as large."""
    make(small)()  # what is looked up once
    few, many = lines_by_function(make(small)), lines_by_function(make(small * factor))
    noise = _SHARE * many.total()
    return {
        name: (few[name], count)
        for name, count in many.items()
        if count > noise and count > factor * slack * few[name]
    }
