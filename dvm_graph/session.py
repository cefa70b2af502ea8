"""onnxruntime's way in: a session with the arguments and methods of `onnxruntime.InferenceSession`.

Programs that were written for onnxruntime run on dvm_graph by importing `InferenceSession` from here.
Tensors are onnxruntime's own `OrtValue`s, options its own `SessionOptions` and `RunOptions`. Execution
providers are names: whatever is asked for, the model runs on this machine's CPU, and a warning says so.
Errors are this package's, `InputError` being a ValueError as onnxruntime's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnxruntime import OrtValue

from dvm_graph.description import TensorInfo
from dvm_graph.errors import DvmError, InputError
from dvm_graph.ir import Array, ModelMetadata
from dvm_graph.model import open_model
from dvm_graph.options import DEFAULTS, Options
from dvm_graph.runtime import RunOptions
from dvm_graph.runtime.ort_values import array_over, as_ort, from_ort

Provider = str | tuple[str, Mapping[str, Any]]

CPU_PROVIDER = "CPUExecutionProvider"
_IGNORED_ARGUMENTS = {"enable_fallback", "disabled_optimizers", "read_config_from_model"}
"""Arguments of onnxruntime's that are about how it makes or repairs its own sessions."""


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output, as onnxruntime describes it."""

    name: str
    shape: list[int | str]
    """Extents; dynamic ones by name or expression."""
    type: str
    """For example "tensor(float)"."""


class InferenceSession:
    """A model behind onnxruntime's interface; `model` is what is behind it here."""

    def __init__(
        self,
        path_or_bytes: str | bytes | PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        options: Options | None = None,
        **kwargs: Any,
    ) -> None:
        """Compiles the model.

        Args:
            path_or_bytes: as `dvm_graph.optimize` takes it, or the path of a saved model.
            sess_options: an `onnxruntime.SessionOptions`. `intra_op_num_threads` is the number of cores,
                ORT_DISABLE_ALL turns fusion off; the rest concerns what there is none of here.
            providers: names of execution providers, or pairs of a name and its options.
            provider_options: not looked at.
            options: of this compiler; `sess_options` have the last word.
            **kwargs: further ones of onnxruntime's, not looked at.

        Raises:
            InputError: an argument that onnxruntime has not, either.
            What `dvm_graph.optimize` raises, or `dvm_graph.load`.
        """
        del provider_options
        unknown = sorted(set(kwargs) - _IGNORED_ARGUMENTS)
        if unknown:
            raise InputError(f"InferenceSession takes no argument named {unknown[0]!r}")
        self._sess_options = sess_options
        self.set_providers(providers)
        self.model = open_model(path_or_bytes, _options(sess_options, options or DEFAULTS))
        self._output_names = [info.name for info in self.model.get_outputs()]
        self._worker: ThreadPoolExecutor | None = None

    # -- what it is

    def get_inputs(self) -> list[NodeArg]:
        return _described(self.model.get_inputs())

    def get_outputs(self) -> list[NodeArg]:
        return _described(self.model.get_outputs())

    def get_overridable_initializers(self) -> list[NodeArg]:
        return _described(self.model.get_overridable_initializers())

    def get_modelmeta(self) -> ModelMetadata:
        return self.model.get_modelmeta()

    def get_session_options(self) -> Any:
        """Those it was made with."""
        return self._sess_options

    def get_providers(self) -> list[str]:
        return [CPU_PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {CPU_PROVIDER: {}}

    def set_providers(
        self,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Changes nothing; warns about providers that are not the CPU."""
        del provider_options
        names = [name if isinstance(name, str) else name[0] for name in providers or ()]
        if names and CPU_PROVIDER not in names:
            warnings.warn(
                f"dvm_graph runs on the CPU, not on {', '.join(names)}", UserWarning, stacklevel=3
            )

    def enable_fallback(self) -> None:
        """Changes nothing: there is one provider."""

    def disable_fallback(self) -> None:
        """Changes nothing: there is one provider."""

    # -- running

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, ArrayLike | OrtValue],
        run_options: Any = None,
    ) -> list[Any]:
        """Runs the model; see `Model.run`.

        Args:
            output_names: which outputs to return; None or none: all.
            input_feed: arrays, lists or `OrtValue`s by input name.
            run_options: an `onnxruntime.RunOptions`, whose `terminate` ends vendor operators; a
                `dvm_graph.RunOptions` ends kernels, too.
        """
        return self._run(output_names, input_feed, run_options)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: Any = None,
    ) -> list[OrtValue]:
        results = self._run(output_names, input_dict_ort_values, run_options)
        return [as_ort(result) for result in results]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, ArrayLike | OrtValue],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any = None,
        run_options: Any = None,
    ) -> None:
        """Runs on a thread of the session, which calls `callback(results, user_data, error)` at the end.

        `error` is empty where the run succeeded, and `results` where it did not. Runs that are asked for
        together take turns.
        """

        def work() -> None:
            try:
                results, error = self._run(output_names, input_feed, run_options), ""
            except DvmError as failure:
                results, error = [], str(failure)
            callback(results, user_data, error)

        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "dvm_graph.run_async")
        self._worker.submit(work)

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Runs on what is bound; results go where outputs are bound to.

        Raises:
            InputError: the binding is another session's, or as `run` raises.
        """
        if iobinding.session is not self:
            raise InputError("an IOBinding runs on the session that made it")
        iobinding.results = self._run(
            list(iobinding.outputs) or None,
            iobinding.inputs,
            run_options,
            {name: array for name, array in iobinding.outputs.items() if array is not None},
        )

    def _run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, ArrayLike | OrtValue],
        run_options: Any,
        outputs: Mapping[str, Array] | None = None,
    ) -> list[Any]:
        if not isinstance(input_feed, Mapping):
            raise InputError(
                f"input_feed is a mapping of names to arrays, not a {type(input_feed).__name__}"
            )
        feeds = {
            name: from_ort(feed) if isinstance(feed, OrtValue) else feed
            for name, feed in input_feed.items()
        }
        options = None if run_options is None else RunOptions.of(run_options)
        return self.model.run(feeds, output_names or None, outputs=outputs, run_options=options)


class IOBinding:
    """Arrays that a session reads its inputs from, and writes its outputs into.

    Outputs that are bound by name only are fresh arrays at every run.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self.inputs: dict[str, Array] = {}
        self.outputs: dict[str, Array | None] = {}
        self.results: list[Array] = []
        """Of the last run, in the order in which outputs were bound."""

    def bind_cpu_input(self, name: str, arr_on_cpu: ArrayLike) -> None:
        self.inputs[name] = np.asarray(arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self.inputs[name] = from_ort(ortvalue)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Memory at an address, which the caller keeps alive."""
        _require_cpu(device_type, device_id)
        self.inputs[name] = array_over(buffer_ptr, shape, element_type)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """A fresh array, or memory at an address, which the caller keeps alive.

        Raises:
            InputError: another device than the CPU, or an address without dtype or shape.
        """
        _require_cpu(device_type, device_id)
        if buffer_ptr is None:
            self.outputs[name] = None
            return
        if element_type is None or shape is None:
            raise InputError(f"output {name} at an address needs element_type and shape, too")
        self.outputs[name] = array_over(buffer_ptr, shape, element_type)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self.outputs[name] = from_ort(ortvalue)

    def get_outputs(self) -> list[OrtValue]:
        """Of the last run, in the order in which they were bound."""
        return [as_ort(result) for result in self.results]

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Of the last run, in the order in which they were bound: they are there already."""
        return self.results

    def clear_binding_inputs(self) -> None:
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        self.outputs.clear()

    def synchronize_inputs(self) -> None:
        """Changes nothing: inputs are read when the session runs."""

    def synchronize_outputs(self) -> None:
        """Changes nothing: outputs are written when a run returns."""


def _described(infos: Sequence[TensorInfo]) -> list[NodeArg]:
    return [NodeArg(info.name, list(info.shape), info.type) for info in infos]


def _require_cpu(device_type: str, device_id: int) -> None:
    if device_type != "cpu" or device_id != 0:
        raise InputError(f"tensors are bound to cpu:0, not to {device_type}:{device_id}")


def _options(sess_options: Any, options: Options) -> Options:
    if sess_options is None:
        return options
    threads = sess_options.intra_op_num_threads
    if threads > 0:
        options = replace(options, cores=threads)
    if sess_options.graph_optimization_level.name == "ORT_DISABLE_ALL":
        options = replace(options, fuse=False)
    return options
