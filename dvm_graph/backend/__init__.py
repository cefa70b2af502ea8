"""dvm_graph as an ONNX backend (`onnx.backend.base`).

    import dvm_graph.backend as backend
    outputs = backend.prepare(model).run([x, y])

`python -m dvm_graph.backend` runs onnx's own node tests against it (`conformance`).

Keyword arguments of `prepare` that are fields of `dvm_graph.Options` reach the compiler; others, such
as the tolerances that onnx's test runner passes, are ignored as the interface asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

import dvm_graph
from dvm_graph.errors import InputError, ModelError

_OPTIONS = frozenset(field.name for field in dataclasses.fields(dvm_graph.Options))


class DvmRepresentation(BackendRep):
    """A compiled model that takes its inputs by position."""

    def __init__(self, model: dvm_graph.Model, input_names: Sequence[str]) -> None:
        self.model = model
        self._input_names = tuple(input_names)

    @property
    def vendor_operators(self) -> tuple[str, ...]:
        """Names of the operators that the vendor library runs."""
        return tuple(self.model.report().vendor_operators)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Runs the model on one array, a sequence in the model's order, or a mapping by name."""
        if isinstance(inputs, Mapping):
            return tuple(self.model.run(inputs))
        given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(given) != len(self._input_names):
            raise InputError(
                f"{len(given)} inputs given, but the model takes {len(self._input_names)}: "
                f"{', '.join(self._input_names)}"
            )
        return tuple(self.model.run(dict(zip(self._input_names, given, strict=True))))


class DvmBackend(Backend):
    """onnx's backend interface; `device` names are onnx's ("CPU", "CUDA")."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model compiles on the device."""
        if not cls.supports_device(device):
            return False
        try:
            cls.prepare(model, device, **kwargs)
        except dvm_graph.UnsupportedError:
            return False
        return True

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> DvmRepresentation:
        """Compiles a model."""
        if not cls.supports_device(device):
            raise dvm_graph.UnsupportedError(f"device {device!r} is not supported, only CPU is")
        options = {name: value for name, value in kwargs.items() if name in _OPTIONS}
        constants = {tensor.name for tensor in model.graph.initializer}
        names = [info.name for info in model.graph.input if info.name not in constants]
        return DvmRepresentation(dvm_graph.optimize(model, **options), names)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Compiles a model and runs it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node, by default of the newest opset (`opset_version`)."""
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        arrays = [np.asarray(array) for array in inputs]
        model = _node_model(node, arrays, outputs_info, version)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device is there: the host only."""
        return device.split(":")[0].upper() == "CPU"


def _node_model(
    node: onnx.NodeProto,
    arrays: Sequence[np.ndarray[Any, Any]],
    outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None,
    version: int,
) -> onnx.ModelProto:
    operands = [name for name in node.input if name]
    if len(operands) != len(arrays):
        raise InputError(f"{len(arrays)} inputs given, but the node reads {len(operands)}")
    inputs = [
        helper.make_tensor_value_info(name, numpy_helper.from_array(array).data_type, array.shape)
        for name, array in zip(operands, arrays, strict=True)
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    for info, (dtype, shape) in zip(outputs, outputs_info or (), strict=False):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        info.CopyFrom(helper.make_tensor_value_info(info.name, kind, shape))
    graph = helper.make_graph([node], node.op_type or "node", inputs, outputs)
    imports = [helper.make_opsetid(node.domain, version)]
    model = helper.make_model(graph, opset_imports=imports)
    try:
        return onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError as error:
        raise ModelError(f"node {node.op_type}: {error}") from error


is_compatible = DvmBackend.is_compatible
prepare = DvmBackend.prepare
run_model = DvmBackend.run_model
run_node = DvmBackend.run_node
supports_device = DvmBackend.supports_device
