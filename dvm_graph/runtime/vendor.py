"""Vendor partitions: runs of operators that onnxruntime executes.

In: a `VendorStep` of the plan. Out: a callable from arrays to arrays, which the executor calls with
the interpreter lock held. Tensors pass both ways without a copy; bfloat16, which numpy lacks, passes
as its bits, and the float8 types, which only vendor operators touch, as arrays of ml_dtypes.

Invariants: one session per partition, made when the model is assembled; its threads are as many as
the device has cores and do not spin, so that they do not fight the device's own.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime

from dvm_graph.errors import ExecutionError, UnsupportedError
from dvm_graph.import_ import opset_probes, partition_model
from dvm_graph.import_.vendor_library import failures
from dvm_graph.ir import DType, Node, Value

Partition = Callable[[list[Any]], list[Any]]

_BFLOAT16 = 16
"""ONNX's number of the type."""
_FLOAT8 = {
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
}
"""By ONNX's number."""
_FLOAT8_NUMBERS = {dtype: number for number, dtype in _FLOAT8.items()}
FAILURES = failures()
"""What onnxruntime raises on models and inputs that it refuses."""


def make_partition(nodes: Sequence[Node], outputs: Sequence[Value], cores: int) -> Partition:
    """A session over the nodes.

    Inputs of the callable are those of `partition_inputs`, in that order.

    Raises:
        UnsupportedError: onnxruntime does not run these operators.
    """
    inputs = partition_inputs(nodes)
    model = partition_model(nodes, inputs, outputs, newest_opset())
    try:
        session = onnxruntime.InferenceSession(
            model, _session_options(cores), providers=["CPUExecutionProvider"]
        )
    except FAILURES as error:
        raise UnsupportedError(f"onnxruntime refuses {describe_nodes(nodes)}: {error}") from error
    return _Partition(session, nodes, inputs, outputs).run


@functools.cache
def newest_opset() -> int:
    """The newest opset that the installed onnxruntime runs, found by trying."""
    for version, model in opset_probes():
        try:
            onnxruntime.InferenceSession(
                model, _session_options(cores=1), providers=["CPUExecutionProvider"]
            )
        except FAILURES:
            continue
        return version
    raise UnsupportedError(f"onnxruntime {onnxruntime.__version__} runs no ONNX model")


def partition_inputs(nodes: Sequence[Node]) -> list[Value]:
    """The values from outside that the nodes read; constants live inside the partition."""
    produced = {value for node in nodes for value in node.outputs}
    return list(
        dict.fromkeys(
            value
            for node in nodes
            for value in node.inputs
            if value is not None and value not in produced and not value.is_constant
        )
    )


def _session_options(cores: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def describe_nodes(nodes: Sequence[Node]) -> str:
    """ONNX operators and the names of their nodes: "NonZero (find)"."""
    return ", ".join(f"{node.attrs.get('op', node.op)} ({' '.join(node.origin)})" for node in nodes)


class _Partition:
    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        nodes: Sequence[Node],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
    ) -> None:
        self._session = session
        self._nodes = tuple(nodes)
        self._inputs = [value.name for value in inputs]
        self._outputs = [value.name for value in outputs]
        self._opaque = [value.dtype is DType.OPAQUE for value in outputs]
        self._bfloat16 = {v.name for v in (*inputs, *outputs) if v.dtype is DType.BFLOAT16}
        ports = (*session.get_inputs(), *session.get_outputs())
        self._by_value = bool(self._bfloat16) or any("float8" in port.type for port in ports)

    def run(self, arrays: list[Any]) -> list[Any]:
        feeds = dict(zip(self._inputs, arrays, strict=True))
        try:
            if self._by_value:
                return self._run_values(feeds)
            results: list[Any] = self._session.run(self._outputs, feeds)
        except FAILURES as error:
            raise ExecutionError(
                f"onnxruntime failed in {describe_nodes(self._nodes)}: {error}"
            ) from error
        return [
            result if opaque else np.asarray(result, order="C")
            for result, opaque in zip(results, self._opaque, strict=True)
        ]

    def _run_values(self, feeds: dict[str, Any]) -> list[Any]:
        """As `run`, through onnxruntime's own tensors, which know bfloat16 and float8."""
        values = {name: self._value(name, array) for name, array in feeds.items()}
        results = self._session.run_with_ort_values(self._outputs, values)
        return [self._array(name, r) for name, r in zip(self._outputs, results, strict=True)]

    def _value(self, name: str, array: Any) -> onnxruntime.OrtValue:
        make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
        if name in self._bfloat16:
            return make(array, _BFLOAT16)
        number = _FLOAT8_NUMBERS.get(array.dtype)
        if number is not None:
            return make(np.asarray(array, order="C").view(np.uint8), number)
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)

    def _array(self, name: str, value: onnxruntime.OrtValue) -> np.ndarray[Any, Any]:
        if name in self._bfloat16:
            return _bits(value, ctypes.c_uint16)
        dtype = _FLOAT8.get(value.element_type())
        if dtype is not None:
            return _bits(value, ctypes.c_uint8).view(dtype)
        array: np.ndarray[Any, Any] = value.numpy()
        return array


def _bits(value: onnxruntime.OrtValue, element: type[Any]) -> np.ndarray[Any, Any]:
    """A tensor as unsigned integers, over the tensor's own memory."""
    shape = value.shape()
    buffer = (element * int(np.prod(shape, dtype=np.int64))).from_address(value.data_ptr())
    buffer.owner = value  # lives as long as the array over it
    bits: np.ndarray[Any, Any] = np.ctypeslib.as_array(buffer).reshape(shape)
    return bits
