"""Compiles models for the tests of plans, without the C++ core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from dvm_graph.cluster import Schedule
from dvm_graph.import_ import partition_model
from dvm_graph.kernels.plan import ModelPlan, VendorStep
from dvm_graph.options import Options
from dvm_graph.pipeline import Compiled, compile_model

Array = np.ndarray[Any, Any]


def vendor_runner(compiled: Compiled) -> Callable[[VendorStep, list[Array]], list[Array]]:
    """Runs vendor partitions on onnxruntime."""
    values = {value.name: value for value in compiled.graph.values()}

    def run(step: VendorStep, arrays: list[Array]) -> list[Array]:
        names = [compiled.plan.values[i].name for i in step.inputs]
        results = [compiled.plan.values[i].name for i in step.outputs]
        model = partition_model(
            step.nodes, [values[name] for name in names], [values[name] for name in results]
        )
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return list(session.run(results, dict(zip(names, arrays, strict=True))))

    return run
