"""Random ONNX models over dynamic dims with extents to run them at, for differential tests.

Extents are drawn apart from the graph. What is not drawn: broadcasts that are only right because two
dims happen to be equal, types other than float32, float16, int64 and bool, and operators that the
vendor library would run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from tests.end_to_end.grower import FLOAT, HALF, INT, SYMBOLS, Dim, Draw, Grower, Tensor
from tests.end_to_end.random_operators import FAMILIES
from tests.end_to_end.reference import Array

EXTENTS = (0, 1, 2, 3, 7, 13, 16, 17, 31, 64, 67)
OPSET = 21


@dataclass(slots=True)
class RandomModel:
    """A model and one set of extents to run it at."""

    model: onnx.ModelProto
    dims: tuple[dict[str, int], ...]
    seed: int
    reduction_length: int
    """Longest sum of one output, over all extents."""
    precision: np.dtype[Any]
    """The least precise floating-point type."""

    def feeds(self, dims: dict[str, int]) -> dict[str, Array]:
        generator = np.random.default_rng(self.seed)
        return {value.name: _draw_input(generator, value, dims) for value in self.model.graph.input}

    @property
    def text(self) -> str:
        """The model, for messages; `onnx.parser` reads it back."""
        return str(onnx.printer.to_text(self.model))


def _draw_input(
    generator: np.random.Generator, value: onnx.ValueInfoProto, dims: dict[str, int]
) -> Array:
    tensor = value.type.tensor_type
    shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if tensor.elem_type == INT:
        return generator.integers(-4, 5, shape)
    return generator.uniform(-2, 2, shape).astype(dtype)


@st.composite
def random_models(draw: Draw) -> RandomModel:
    """Models of up to a dozen families' worth of nodes, with two or three sets of extents."""
    grower = Grower(draw)
    for _ in range(draw(st.integers(1, 3))):
        grower.input(draw(st.sampled_from((FLOAT, FLOAT, FLOAT, HALF, INT))))
    # A few families at a time: they meet more often than if all took part.
    few = draw(st.sets(st.sampled_from(FAMILIES), min_size=2, max_size=len(FAMILIES)))
    weighted = [
        family for family, weight in FAMILIES if (family, weight) in few for _ in range(weight)
    ]
    for _ in range(draw(st.integers(1, 12))):
        grower.choose(weighted)(grower)
    if not grower.nodes:
        tensor = grower.inputs[0]
        grower.emit("Neg", [tensor.name], tensor.shape, tensor.dtype, tensor.bound)
    dims = tuple(
        {symbol: draw(st.sampled_from(EXTENTS)) for symbol in SYMBOLS}
        for _ in range(draw(st.integers(1, 3)))
    )
    half = any(tensor.dtype == HALF for tensor in grower.tensors)
    precision = np.dtype(np.float16 if half else np.float32)
    seed = draw(st.integers(0, 9))
    return RandomModel(_model(grower), dims, seed, _longest(grower.sums, dims), precision)


def _longest(sums: Sequence[Dim], dims: Sequence[dict[str, int]]) -> int:
    """The product of the longest of each, which is cautious: few of the sums follow each other."""
    return math.prod(max(1, *(_extent(dim, extents) for extents in dims)) for dim in sums)


def _extent(dim: Dim, extents: dict[str, int]) -> int:
    """The extent of a dim, which may be a product of dims."""
    if isinstance(dim, int):
        return dim
    return math.prod(extents[f] if f in extents else int(f) for f in dim.split("*"))


def _model(grower: Grower) -> onnx.ModelProto:
    read = {name for node in grower.nodes for name in node.input}
    results = [t for t in grower.tensors if t.name not in read and t not in grower.inputs]

    def info(tensor: Tensor) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(tensor.name, tensor.dtype, tensor.shape)

    graph = helper.make_graph(
        grower.nodes,
        "random",
        [info(tensor) for tensor in grower.inputs],
        [info(tensor) for tensor in results],
        grower.constants,
    )
    imports = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, ir_version=10, opset_imports=imports)
