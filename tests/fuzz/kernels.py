"""What onnxruntime runs on a processor: its kernels, and the schemas of its own operators."""

from __future__ import annotations

import functools
from typing import Any

from onnxruntime.capi import onnxruntime_pybind11_state

from tests.fuzz.operands import MICROSOFT


@functools.cache
def own() -> dict[str, Any]:
    """onnxruntime's own operators that run on a processor, by name."""
    names = {op for domain, op in kernels() if domain == MICROSOFT}
    schemas = onnxruntime_pybind11_state.get_all_operator_schema()
    return {s.name: s for s in schemas if s.domain == MICROSOFT and s.name in names}


@functools.cache
def kernels() -> dict[tuple[str, str], list[Any]]:
    """By domain and operator."""
    found: dict[tuple[str, str], list[Any]] = {}
    for kernel in onnxruntime_pybind11_state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            found.setdefault((kernel.domain, kernel.op_name), []).append(kernel)
    return found
