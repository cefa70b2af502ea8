"""One-node models, their decomposition, and the comparison with onnxruntime.

A `Case` describes one ONNX node over symbolic dims; `check` runs it at several extents.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from dvm_graph.decompose import decompose
from dvm_graph.import_ import import_onnx
from dvm_graph.ir import Graph
from dvm_graph.options import Options
from dvm_graph.symbolic import Facts, Symbols
from tests.decompose.evaluate import evaluate
from tests.tolerances import assert_close

Array: TypeAlias = np.ndarray[Any, Any]
OPSET = 21


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input of a case: shape over named and known dims, and how its contents are drawn."""

    shape: tuple[int | str, ...]
    dtype: str = "float32"
    low: float = -3
    high: float = 3
    """Integers are drawn from [low, high)."""

    def draw(self, generator: np.random.Generator, dims: Mapping[str, int]) -> Array:
        shape = tuple(dims[d] if isinstance(d, str) else d for d in self.shape)
        dtype = np.dtype(self.dtype)
        if dtype == np.bool_:
            return generator.integers(0, 2, shape).astype(np.bool_)
        if dtype.kind in "iu":
            return generator.integers(int(self.low), int(self.high), shape).astype(dtype)
        return generator.uniform(self.low, self.high, shape).astype(dtype)


@dataclass(frozen=True, slots=True)
class Case:
    """One ONNX node. Operands are inputs, constants, or None for an omitted one."""

    op: str
    operands: Sequence[Tensor | Array | None]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = OPSET
    empty: bool = True
    """Whether onnxruntime runs it with extents of 0."""
    label: str = ""
    domain: str = ""
    omitted: Collection[int] = ()
    """Positions among the outputs that the node leaves out."""

    def __str__(self) -> str:
        attrs = ",".join(f"{key}={value}" for key, value in self.attrs.items())
        ranks = "x".join("" if v is None else str(len(v.shape)) for v in self.operands)
        return self.label or f"{self.op}-{ranks}-{attrs}-{self.opset}"

    @property
    def symbols(self) -> list[str]:
        tensors = [v for v in self.operands if isinstance(v, Tensor)]
        return sorted({d for tensor in tensors for d in tensor.shape if isinstance(d, str)})

    def model(self) -> onnx.ModelProto:
        names: list[str] = []
        inputs, constants = [], []
        for index, value in enumerate(self.operands):
            names.append("" if value is None else f"x{index}")
            if isinstance(value, Tensor):
                kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
                inputs.append(helper.make_tensor_value_info(names[-1], kind, value.shape))
            elif value is not None:
                constants.append(numpy_helper.from_array(value, names[-1]))
        results = ["" if i in self.omitted else f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(
            self.op, names, results, name="node", domain=self.domain, **self.attrs
        )
        untyped = [onnx.ValueInfoProto(name=name) for name in results if name]
        graph = helper.make_graph([node], "one_node", inputs, untyped, constants)
        imports = [helper.make_opsetid("", self.opset)]
        if self.domain:
            imports.append(helper.make_opsetid(self.domain, 1))
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        return onnx.shape_inference.infer_shapes(model)

    def extents(self) -> list[dict[str, int]]:
        """The extents to run at: several, all ones, and each symbol in turn 0 and 1."""
        symbols = self.symbols
        several = {name: 2 + index for index, name in enumerate(symbols)}
        grid = [several, dict.fromkeys(symbols, 1)]
        grid += [{**several, name: 1} for name in symbols]
        if self.empty:
            grid += [{**several, name: 0} for name in symbols]
        return [dims for index, dims in enumerate(grid) if dims not in grid[:index]]


def decomposed(model: onnx.ModelProto | str, *, strict: bool = False) -> Graph:
    facts, options = Facts(Symbols()), Options(strict=strict)
    return decompose(import_onnx(model, options, facts.symbols), facts, options)


def vendor_operators(graph: Graph) -> list[str]:
    return [node.attrs["op"] for node in graph.needed_nodes() if node.op == "vendor"]


def calls(graph: Graph) -> list[str]:
    """ONNX operators that are steps between kernels: vendor operators and control flow."""
    return [node.attrs["op"] for node in graph.needed_nodes() if node.is_call]


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def check(case: Case, *, native: bool = True) -> None:
    """The decomposition gives what onnxruntime gives, at all extents of the case."""
    model = case.model()
    graph = decomposed(model)
    if native:
        assert not vendor_operators(graph)
    reference = session(model)
    for seed, dims in enumerate(case.extents()):
        generator = np.random.default_rng(seed)
        feeds = {
            f"x{index}": value.draw(generator, dims)
            for index, value in enumerate(case.operands)
            if isinstance(value, Tensor)
        }
        actual = evaluate(graph, feeds)
        for name, result, expected in zip(
            graph.output_names, actual, reference.run(None, feeds), strict=True
        ):
            try:
                assert_close(result, expected, reduction_length=100)
            except AssertionError as error:
                raise AssertionError(f"{case} at {dims}, output {name}: {error}") from error
