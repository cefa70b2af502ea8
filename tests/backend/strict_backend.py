"""A backend that has no vendor operators, for workers to import."""

from __future__ import annotations

from typing import Any

import onnx

from dvm_graph.backend import DvmBackend, DvmRepresentation


class StrictBackend(DvmBackend):
    """Skips what would need one."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> DvmRepresentation:
        return super().prepare(model, device, **{**kwargs, "strict": True})
