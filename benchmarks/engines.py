"""The engines, as they live in a process of their own; each imports its library only when it is made.

The feeds of a point are prepared outside the timed region, and results are left in the form that the engine gives
them in: no engine pays for a copy that its users can avoid. Torch runs the modules that the models were exported from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import BF16_TOLERANCE, TOLERANCE
from benchmarks.workload import Feeds, Source


@dataclass(frozen=True, slots=True)
class CompileCost:
    """What compiling at run time cost in one run, on the engine's own clock; kernels is 0 where it has none."""

    kernels: int = 0
    max_us: float = 0.0
    total_us: float = 0.0


class Engine(ABC):
    """Lives in the worker process."""

    packages: ClassVar[tuple[str, ...]]
    """What is imported before loading is timed."""
    tolerance: ClassVar[float] = TOLERANCE
    """Of a result against the reference's, relative to the largest magnitude of the output."""
    rounds: ClassVar[bool] = False
    """It computes in less than f32: it takes part where it is named, and is nobody's best peer."""

    @abstractmethod
    def load(self, source: Source, threads: int) -> None: ...

    @abstractmethod
    def prepare(self, feeds: Feeds) -> Any:
        """The feeds as `run` takes them; not timed."""

    @abstractmethod
    def run(self, prepared: Any) -> Any:
        """Timed. Returns when the results are complete."""

    @abstractmethod
    def arrays(self, result: Any) -> list[NDArray[Any]]:
        """The results of a run; not timed."""

    def compile_cost(self) -> CompileCost:
        """Of the last run."""
        return CompileCost()


class DvmGraph(Engine):
    packages = ("dvm_graph",)
    options: ClassVar[Mapping[str, Any]] = {}

    def load(self, source: Source, threads: int) -> None:
        import dvm_graph

        self._model = dvm_graph.optimize(source.path, cores=threads, **self.options)

    def prepare(self, feeds: Feeds) -> Any:
        return dict(feeds)

    def run(self, prepared: Any) -> Any:
        return self._model.run(prepared)

    def arrays(self, result: Any) -> list[NDArray[Any]]:
        return list(result)

    def compile_cost(self) -> CompileCost:
        statistics = self._model.statistics
        return CompileCost(
            statistics.kernels_compiled,
            statistics.max_compile_ns / 1e3,
            statistics.compile_ns / 1e3,
        )


class DvmGraphEarlier(DvmGraph):
    """Another version, installed editable in an environment of its own: to see what a change costs or gains."""


class DvmGraphDirect(DvmGraph):
    """Convolutions are sums of products, none by way of transforms."""

    options: ClassVar[Mapping[str, Any]] = {"winograd": False}


class DvmGraphBf16(DvmGraph):
    """Rounds the operands of matrix products."""

    options: ClassVar[Mapping[str, Any]] = {"precision": "bf16"}
    tolerance = BF16_TOLERANCE
    rounds = True


class OnnxRuntime(Engine):
    packages = ("onnxruntime",)

    def load(self, source: Source, threads: int) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        self._session = ort.InferenceSession(source.path, options, providers=providers)

    def prepare(self, feeds: Feeds) -> Any:
        return dict(feeds)

    def run(self, prepared: Any) -> Any:
        return self._session.run(None, prepared)  # results are views of its own memory

    def arrays(self, result: Any) -> list[NDArray[Any]]:
        return list(result)


class OpenVino(Engine):
    packages = ("openvino",)
    precision: ClassVar[str] = "f32"

    def load(self, source: Source, threads: int) -> None:
        import openvino

        hints = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": self.precision,
            "INFERENCE_NUM_THREADS": threads,
        }
        compiled = openvino.Core().compile_model(source.path, "CPU", hints)
        self._request = compiled.create_infer_request()

    def prepare(self, feeds: Feeds) -> Any:
        return dict(feeds)

    def run(self, prepared: Any) -> Any:
        return self._request.infer(prepared, share_inputs=True, share_outputs=True)

    def arrays(self, result: Any) -> list[NDArray[Any]]:
        return [np.array(array) for array in result.values()]


class OpenVinoBf16(OpenVino):
    """Keeps most tensors in bf16, not the operands of matrix products alone."""

    precision = "bf16"
    tolerance = BF16_TOLERANCE
    rounds = True


class TorchEager(Engine):
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "onnx")

    def load(self, source: Source, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._case, module = _torch_module(source)
        self._module = self.compiled(module)

    def compiled(self, module: Any) -> Any:
        return module

    def prepare(self, feeds: Feeds) -> Any:
        import torch

        tensors = {name: torch.from_numpy(array) for name, array in feeds.items()}
        return tensors if self._case is None else self._case.arguments(tensors)

    def run(self, prepared: Any) -> Any:
        return self._module(**prepared)

    def arrays(self, result: Any) -> list[NDArray[Any]]:
        import torch

        leaves = torch.utils._pytree.tree_leaves(result)
        return [leaf.numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]


class InductorDynamic(TorchEager):
    packages = ("torch", "torch._dynamo", "torch._inductor.compile_fx", "transformers", "onnx")
    dynamic: ClassVar[bool] = True

    def compiled(self, module: Any) -> Any:
        import torch

        torch._dynamo.config.recompile_limit = 4096  # else it gives up compiling after eight shapes
        torch._dynamo.config.accumulated_recompile_limit = 4096
        return torch.compile(module, dynamic=self.dynamic)


class InductorStatic(InductorDynamic):
    """Compiles anew for every shape."""

    dynamic = False


class InductorBranches(InductorDynamic):
    """Is told which branch to take by a Python bool, and compiles anew for each."""

    def prepare(self, feeds: Feeds) -> Any:
        prepared = super().prepare(feeds)
        return {name: _python_bool(value) for name, value in prepared.items()}


class MindSpore(Engine):
    """Graph mode O0 on its CPU backend, with dynamic inputs; operators and subgraphs only."""

    packages = ("mindspore",)

    def load(self, source: Source, threads: int) -> None:
        import mindspore

        from benchmarks.mindspore_operators import operator

        mindspore.set_context(mode=mindspore.GRAPH_MODE, runtime_num_threads=threads)
        mindspore.set_device("CPU")
        mindspore.set_context(jit_config={"jit_level": "O0"})
        self._cell = operator(source.operator)
        self._declared = False

    def prepare(self, feeds: Feeds) -> Any:
        import mindspore

        tensors = [mindspore.Tensor(array) for array in feeds.values()]
        if not self._declared:
            self._cell.set_inputs(
                *(
                    mindspore.Tensor(shape=[None] * tensor.ndim, dtype=tensor.dtype)
                    for tensor in tensors
                )
            )
            self._declared = True
        return tensors

    def run(self, prepared: Any) -> Any:
        result = self._cell(*prepared)
        result.asnumpy()  # waits, and is a view of its memory
        return result

    def arrays(self, result: Any) -> list[NDArray[Any]]:
        return [np.array(result.asnumpy())]


EARLIER = "dvm_graph_earlier"

ENGINES: Mapping[str, type[Engine]] = {
    "dvm_graph": DvmGraph,
    EARLIER: DvmGraphEarlier,
    "dvm_graph_direct": DvmGraphDirect,
    "dvm_graph_bf16": DvmGraphBf16,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "openvino_bf16": OpenVinoBf16,
    "torch": TorchEager,
    "inductor_dynamic": InductorDynamic,
    "inductor_static": InductorStatic,
    "inductor_branches": InductorBranches,
    "mindspore": MindSpore,
}

DEFAULT = tuple(
    name
    for name, engine in ENGINES.items()
    if not engine.rounds and name not in (EARLIER, "dvm_graph_direct", "inductor_branches")
)
"""Those that take part where none are named."""


def _python_bool(tensor: Any) -> Any:
    return bool(tensor) if str(tensor.dtype) == "torch.bool" and not tensor.ndim else tensor


def _torch_module(source: Source) -> tuple[Any, Any]:
    """The module, and the export case that knows how its arguments are grouped (None for operators)."""
    if source.family:
        from models.case import Size
        from models.exporting import build_case

        case = build_case(source.family, Size.BASE)
        return case, case.module
    if not source.operator:
        raise ValueError(f"no torch module computes what {source.path} does")
    import onnx
    import torch
    from onnx import numpy_helper

    from benchmarks import torch_operators

    constants = {
        tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy())
        for tensor in onnx.load(source.path).graph.initializer
    }
    function = getattr(torch_operators, source.operator)
    if not constants:
        return None, function
    return None, torch_operators.Bound(function, constants)
