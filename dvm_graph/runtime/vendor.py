"""Vendor partitions: runs of operators that onnxruntime executes.

In: a `VendorModel`. Out: a callable from arrays and the run's options to arrays, which the
executor calls with the interpreter lock held. Tensors pass both ways without a copy, those of types that numpy lacks as
arrays of ml_dtypes (`ort_values`), strings, sequences and maps as onnxruntime has them in Python.

Invariants: one session per partition, made when the model is assembled or loaded; its threads are as many as
the device has cores and do not spin where the device's own may have work, so that they do not fight them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime

from dvm_graph.errors import CancelledError, ExecutionError, OutOfMemoryError
from dvm_graph.ir import DType
from dvm_graph.process import call_aside, in_main_thread, vendor_failures, vendor_session
from dvm_graph.runtime.arrays import as_array
from dvm_graph.runtime.ort_values import FOREIGN, ElementType, from_ort, to_ort
from dvm_graph.runtime.run_options import RunOptions
from dvm_graph.runtime.vendor_model import VendorModel, VendorResult, VendorThreads
from dvm_graph.runtime.vendor_session import VendorSession

FAILURES = vendor_failures()
"""What onnxruntime raises on models and inputs that it refuses."""
_OUT_OF_MEMORY = ("Failed to allocate memory", "bad allocation", "bad_alloc")
"""It says so then: messages about anything else may name the types of a function, allocators among them."""


def make_session(
    model: str | bytes,
    threads: VendorThreads,
    optimise: bool = True,
    quantized: bool = True,
    reuse: bool = True,
) -> onnxruntime.InferenceSession:
    """`optimise`, `quantized`: whether onnxruntime may rewrite the model, and what is quantised in it; `reuse`:
    whether values may share memory.
    """
    options = onnxruntime.SessionOptions()
    options.enable_mem_reuse = reuse
    if not quantized:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    # Of 4-bit weights: products of floats, where the default rounds the left operand to 8 bits.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads.count
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(threads.spin)))

    def make() -> onnxruntime.InferenceSession:
        return vendor_session()(model, options, providers=["CPUExecutionProvider"])

    if in_main_thread():  # a handler may end it, be it long
        return call_aside(make, lambda: options.set_load_cancellation_flag(True))
    return make()


class VendorPartition:
    """A partition that is ready to run; `session`, where there is one already, is over its model."""

    def __init__(
        self,
        model: VendorModel,
        threads: VendorThreads,
        session: onnxruntime.InferenceSession | None = None,
    ) -> None:
        self.model = model
        self._threads, self._reuse = threads, True
        self._session = VendorSession(self._make, session, loops=model.loops)
        inputs, results = self._session.ports
        kinds = {name: FOREIGN[kind] for name, kind in model.foreign.items()}
        self._by_value = bool(kinds) and made_of_values(inputs)
        self._foreign = {n: FOREIGN[kind] for n, kind in foreign_ports(inputs).items()}
        self._tensors = [port.name for port in inputs if port.type[:6] == "tensor"]
        self._outputs = [port.name for port in results]
        self._give = [_giver(result, kinds.get(result.name)) for result in model.results]

    def _make(self) -> onnxruntime.InferenceSession:
        model = self.model
        return make_session(
            model.model(), self._threads, model.optimise, model.quantized, self._reuse
        )

    def run(self, arrays: list[Any], options: RunOptions | None) -> list[Any]:
        feeds = dict(zip(self.model.inputs, arrays, strict=True))
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
            where = self.model.nodes
            if options.terminate:
                raise CancelledError(f"the run was ended in {where}") from error
            if self._reuse and "re-use buffer" in str(error):
                # What it shares follows from shapes that it deduced, and some are not its operators'.
                self._reuse = False
                return self._run(feeds, self._session.renew(), options)
            if any(words in str(error) for words in _OUT_OF_MEMORY):
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


def foreign_ports(ports: Sequence[Any]) -> dict[str, str]:
    """Inputs or outputs of types that numpy lacks, and those types."""
    return {port.name: port.type for port in ports if port.type in FOREIGN}


def made_of_values(ports: Sequence[Any]) -> bool:
    """Whether onnxruntime's values can be made of what these inputs are fed."""
    return all(port.type.startswith("tensor(") and "string" not in port.type for port in ports)


def _giver(value: VendorResult, kind: ElementType | None) -> Callable[[Any], Any]:
    """How a result is handed on: kernels take rows without gaps, and bfloat16 as its bits."""

    def give(result: Any) -> Any:
        if kind is not None and result is not None:
            result = np.asarray(result).astype(kind.dtype, copy=False)  # unless it was cast
        if value.computable:
            result = np.asarray(result, order="C")
        return result.view(np.uint16) if bits else result

    bits = value.computable and value.dtype is DType.BFLOAT16
    return give if value.computable or kind is not None else _as_it_comes


def _as_it_comes(result: Any) -> Any:
    return result
