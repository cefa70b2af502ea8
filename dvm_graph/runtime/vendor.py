"""Vendor partitions: runs of operators that onnxruntime executes.

In: a `VendorStep` of the plan. Out: a callable from arrays and the run's options to arrays, which the
executor calls with the interpreter lock held. Tensors pass both ways without a copy, those of types that numpy lacks as
arrays of ml_dtypes (`ort_values`), strings, sequences and maps as onnxruntime has them in Python.

Invariants: one session per partition, made when the model is assembled; its threads are as many as
the device has cores and do not spin, so that they do not fight the device's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from dvm_graph.errors import (
    CancelledError,
    ExecutionError,
    OutOfMemoryError,
    UnsupportedError,
)
from dvm_graph.import_ import (
    cast_outputs,
    lacks_zero_point,
    opset_probes,
    partition_models,
)
from dvm_graph.ir import DType, Node, Value
from dvm_graph.kernels.plan import describe_nodes
from dvm_graph.process import call_aside, in_main_thread, vendor_failures
from dvm_graph.runtime.arrays import as_array
from dvm_graph.runtime.ort_values import FOREIGN, ElementType, from_ort, to_ort
from dvm_graph.runtime.run_options import RunOptions
from dvm_graph.runtime.vendor_session import VendorSession

Partition = Callable[[list[Any], RunOptions | None], list[Any]]

FAILURES = vendor_failures()
"""What onnxruntime raises on models and inputs that it refuses."""


@dataclass(frozen=True, slots=True)
class VendorPartition:
    """A partition that is ready to run."""

    run: Partition
    casts: tuple[str, ...] = ()
    """Those that onnxruntime needed: "Compress (node): bfloat16 as float"."""


def make_partition(
    nodes: Sequence[Node], outputs: Sequence[Value], cores: int, *, optimise: bool = True
) -> VendorPartition:
    """A session over the nodes.

    Inputs of the callable are those of `partition_inputs`, in that order. `optimise`: onnxruntime may
    rewrite the nodes to others.

    Raises:
        UnsupportedError: onnxruntime does not run these operators.
    """
    if not outputs:  # nobody reads them: the pass that leaves out such operators may be disabled
        return VendorPartition(_nothing)
    partition = _Partition(nodes, outputs, cores, optimise)
    return VendorPartition(partition.run, tuple(partition.casts))


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


def _session(
    model: str | bytes, cores: int, optimise: bool = True, quantized: bool = True
) -> onnxruntime.InferenceSession:
    """`optimise`, `quantized`: whether onnxruntime may rewrite the model, and what is quantised in it."""
    options = onnxruntime.SessionOptions()
    if not quantized:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = cores
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")

    def make() -> onnxruntime.InferenceSession:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    if in_main_thread():  # a handler may end it, be it long
        return call_aside(make, lambda: options.set_load_cancellation_flag(True))
    return make()


class _Partition:
    def __init__(
        self, nodes: Sequence[Node], outputs: Sequence[Value], cores: int, optimise: bool
    ) -> None:
        self._nodes = tuple(nodes)
        self._values = tuple(outputs)
        self._cores, self._optimise = cores, optimise
        self._quantized = not lacks_zero_point(nodes)
        self._foreign_outputs: dict[str, ElementType] = {}
        self._by_value = False
        self.casts: Sequence[str] = ()
        loops = any(node.attrs.get("op") == "Loop" for node in nodes)
        self._session = VendorSession(self._make_session, loops=loops)
        inputs, results = self._session.ports
        self._inputs = [value.name for value in partition_inputs(nodes)]
        self._foreign = _foreign_ports(inputs)
        self._tensors = [port.name for port in inputs if port.type[:6] == "tensor"]
        self._outputs = [port.name for port in results]
        self._give = [_giver(value, self._foreign_outputs.get(value.name)) for value in outputs]

    def _session_of(self, model: str | bytes) -> onnxruntime.InferenceSession:
        return _session(model, self._cores, self._optimise, self._quantized)

    def _make_session(self) -> onnxruntime.InferenceSession:
        refusal: Exception | None = None
        for model, casts in self._candidates():
            try:
                session = self._session_of(model)
                self._foreign_outputs = _foreign_ports(session.get_outputs())
                by_value = _made_of_values(session.get_inputs())
                self._by_value = by_value and bool(self._foreign_outputs)
                if self._foreign_outputs and not by_value and isinstance(model, bytes):
                    cast = cast_outputs(model, list(self._foreign_outputs))
                    session = self._session_of(cast)
            except FAILURES as error:
                refusal = refusal or error
                continue
            self.casts = casts
            return session
        where = describe_nodes(self._nodes)
        raise UnsupportedError(f"onnxruntime refuses {where}: {refusal}") from refusal

    def _candidates(self) -> Iterator[tuple[str | bytes, Sequence[str]]]:
        """Models of the partition, the plainest first, and the casts that they come with."""
        whole: str | bytes | None = self._nodes[0].attrs.get("model")  # it was not taken apart
        if whole is not None:
            yield whole, ()
            return
        inputs = partition_inputs(self._nodes)
        yield from partition_models(self._nodes, inputs, self._values, newest_opset())

    def run(self, arrays: list[Any], options: RunOptions | None) -> list[Any]:
        feeds = dict(zip(self._inputs, arrays, strict=True))
        for name in self._tensors:
            if not isinstance(feeds[name], np.ndarray):  # a number, or a list of strings
                feeds[name] = as_array(name, feeds[name])
        for name, kind in self._foreign.items():
            feeds[name] = to_ort(name, feeds[name], kind)
        results = self._session.call(lambda *session: self._run(feeds, *session), options)
        return [give(result) for give, result in zip(self._give, results, strict=True)]

    def _run(
        self,
        feeds: dict[str, Any],
        session: onnxruntime.InferenceSession,
        options: onnxruntime.RunOptions,
    ) -> list[Any]:
        try:
            if self._by_value:
                return self._run_values(feeds, session, options)
            results: list[Any] = session.run(self._outputs, feeds, options)
            return results
        except FAILURES as error:
            where = describe_nodes(self._nodes)
            if options.terminate:
                raise CancelledError(f"the run was ended in {where}") from error
            if "allocat" in str(error):  # "Failed to allocate memory ...", "bad allocation"
                raise OutOfMemoryError(f"no memory left for {where}: {error}") from error
            raise ExecutionError(f"onnxruntime failed in {where}: {error}") from error

    def _run_values(
        self,
        feeds: dict[str, Any],
        session: onnxruntime.InferenceSession,
        options: onnxruntime.RunOptions,
    ) -> list[Any]:
        """As the session's `run`, whose results have only types that numpy has."""
        values = {
            name: feed
            if isinstance(feed, onnxruntime.OrtValue)
            else onnxruntime.OrtValue.ortvalue_from_numpy(feed)
            for name, feed in feeds.items()
        }
        results = session.run_with_ort_values(self._outputs, values, options)
        return [from_ort(value) for value in results]


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


def _nothing(arrays: list[Any], options: RunOptions | None) -> list[Any]:
    return []


def _as_it_comes(result: Any) -> Any:
    return result
