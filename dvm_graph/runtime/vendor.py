"""Vendor partitions: runs of operators that onnxruntime executes.

In: a `VendorStep` of the plan. Out: a callable from arrays to arrays, which the executor calls with
the interpreter lock held. Tensors pass both ways without a copy, those of types that numpy lacks as
arrays of ml_dtypes (`ort_values`), strings, sequences and maps as onnxruntime has them in Python.

Invariants: one session per partition, made when the model is assembled; its threads are as many as
the device has cores and do not spin, so that they do not fight the device's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime

from dvm_graph.errors import ExecutionError, UnsupportedError
from dvm_graph.import_ import cast_outputs, opset_probes, partition_model
from dvm_graph.import_.vendor_library import failures
from dvm_graph.ir import DType, Node, Value
from dvm_graph.runtime.ort_values import FOREIGN, ElementType, from_ort, to_ort

Partition = Callable[[list[Any]], list[Any]]

FAILURES = failures()
"""What onnxruntime raises on models and inputs that it refuses."""


def make_partition(nodes: Sequence[Node], outputs: Sequence[Value], cores: int) -> Partition:
    """A session over the nodes.

    Inputs of the callable are those of `partition_inputs`, in that order.

    Raises:
        UnsupportedError: onnxruntime does not run these operators.
    """
    if not outputs:  # nobody reads them: the pass that leaves out such operators may be disabled
        return _nothing
    inputs = partition_inputs(nodes)
    whole: str | bytes | None = nodes[0].attrs.get("model")  # of a model that nobody took apart
    model = partition_model(nodes, inputs, outputs, newest_opset()) if whole is None else whole
    try:
        session = _session(model, cores)
        foreign = _foreign_ports(session.get_outputs())
        by_value = _made_of_values(session.get_inputs())
        if foreign and not by_value and isinstance(model, bytes):
            session = _session(cast_outputs(model, list(foreign)), cores)
    except FAILURES as error:
        raise UnsupportedError(f"onnxruntime refuses {describe_nodes(nodes)}: {error}") from error
    foreign_outputs = [foreign.get(value.name) for value in outputs]
    return _Partition(session, nodes, inputs, outputs, foreign_outputs, by_value).run


@functools.cache
def newest_opset() -> int:
    """The newest opset that the installed onnxruntime runs, found by trying."""
    for version, model in opset_probes():
        try:
            _session(model, cores=1)
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


def _session(model: str | bytes, cores: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


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
        foreign_outputs: Sequence[ElementType | None],
        by_value: bool,
    ) -> None:
        self._session = session
        self._nodes = tuple(nodes)
        self._inputs = [value.name for value in inputs]
        self._foreign = _foreign_ports(session.get_inputs())
        self._tensors = [port.name for port in session.get_inputs() if port.type[:6] == "tensor"]
        self._by_value = by_value and any(foreign_outputs)
        self._outputs = [port.name for port in session.get_outputs()]
        self._give = [_giver(v, kind) for v, kind in zip(outputs, foreign_outputs, strict=True)]

    def run(self, arrays: list[Any]) -> list[Any]:
        feeds = dict(zip(self._inputs, arrays, strict=True))
        for name in self._tensors:
            if not isinstance(feeds[name], np.ndarray):  # a number, or a list of strings
                feeds[name] = np.asarray(feeds[name])
        for name, kind in self._foreign.items():
            feeds[name] = to_ort(name, feeds[name], kind)
        run = self._run_values if self._by_value else self._session.run
        try:
            results = run(self._outputs, feeds)
        except FAILURES as error:
            raise ExecutionError(
                f"onnxruntime failed in {describe_nodes(self._nodes)}: {error}"
            ) from error
        return [give(result) for give, result in zip(self._give, results, strict=True)]

    def _run_values(self, names: list[str], feeds: dict[str, Any]) -> list[Any]:
        """As the session's `run`, whose results have only types that numpy has."""
        values = {
            name: feed
            if isinstance(feed, onnxruntime.OrtValue)
            else onnxruntime.OrtValue.ortvalue_from_numpy(feed)
            for name, feed in feeds.items()
        }
        return [from_ort(value) for value in self._session.run_with_ort_values(names, values)]


def _foreign_ports(ports: Sequence[Any]) -> dict[str, ElementType]:
    return {port.name: FOREIGN[port.type] for port in ports if port.type in FOREIGN}


def _made_of_values(ports: Sequence[Any]) -> bool:
    """Whether onnxruntime's values can be made of what these inputs are fed."""
    return all(port.type.startswith("tensor(") and "string" not in port.type for port in ports)


def _giver(value: Value, kind: ElementType | None) -> Callable[[Any], Any]:
    """How a result is handed on: kernels take rows without gaps, and bfloat16 as its bits."""

    def give(result: Any) -> Any:
        if kind is not None and result is not None:
            result = np.asarray(result).astype(kind.dtype, copy=False)  # unless it was cast
        if value.computable:
            result = np.asarray(result, order="C")
        return result.view(np.uint16) if bits else result

    bits = value.computable and value.dtype is DType.BFLOAT16
    return give if value.computable or kind is not None else _as_it_comes


def _nothing(arrays: list[Any]) -> list[Any]:
    return []


def _as_it_comes(result: Any) -> Any:
    return result
