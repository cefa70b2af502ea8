"""Stand-ins for the compiler, to test the interface and the test command without it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime

from dvm_graph.backend import DvmBackend, DvmRepresentation
from dvm_graph.errors import UnsupportedError


@dataclass(frozen=True)
class VendorReport:
    vendor_operators: tuple[str, ...]


class VendorModel:
    """Runs a model on onnxruntime; says that `Add` needed no vendor operator."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        self._operators = tuple(n.op_type for n in model.graph.node if n.op_type != "Add")

    def run(self, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
        return list(self._session.run(None, feeds))

    def report(self) -> VendorReport:
        return VendorReport(self._operators)


class VendorBackend(DvmBackend):
    """Runs everything on onnxruntime; does odd things on some operators."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
        operator = model.graph.node[0].op_type
        if operator == "Abs":
            os.abort()
        if operator == "Ceil":
            time.sleep(3600)
        if operator == "Acos":
            raise UnsupportedError("no arc today")
        names = [info.name for info in model.graph.input]
        representation = DvmRepresentation(VendorModel(model), names)  # it runs as a Model does
        if operator == "Sign":
            run = representation.run
            representation.run = lambda inputs, **_: [-run(inputs)[0]]  # wrong on purpose
        return representation
