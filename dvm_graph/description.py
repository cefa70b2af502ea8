"""What users may ask of a model besides running it: its inputs and outputs, and what its file says.

It holds only text and numbers, so that a model can be asked without its graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dvm_graph.ir import Graph, ModelMetadata, Value

if TYPE_CHECKING:
    from dvm_graph.symbolic import Facts


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output, as onnxruntime's `NodeArg` describes it."""

    name: str
    shape: tuple[int | str, ...]
    """Extents; dynamic ones by name or expression."""
    type: str
    """For example "tensor(float)"."""

    def __str__(self) -> str:
        return f"{self.name} {self.type}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Description:
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    overridable: tuple[TensorInfo, ...]
    """Constants that the model declares as inputs as well."""
    about: ModelMetadata
    table_rows: Mapping[str, int]
    """See `feeds.table_rows`."""
    demands: Mapping[str, int | str]
    """See `feeds.demands_on_dims`."""
    onnx_operators: Mapping[str, str]
    """Of the ONNX nodes, those in bodies of control flow too, by name."""
    data_files: Mapping[str, str] | None
    """See `Graph.data_files`."""

    def default_dims(self, given: Mapping[str, int]) -> dict[str, int]:
        """See `Model.default_dims`."""
        from dvm_graph.feeds import default_dims

        return default_dims(self.inputs, self.demands, given)


def describe(graph: Graph, facts: Facts) -> Description:
    """The description of a compiled graph."""
    from dvm_graph.feeds import demands_on_dims, table_rows

    return Description(
        tuple(_describe(value.name, value) for value in graph.inputs),
        tuple(_describe(*pair) for pair in zip(graph.output_names, graph.outputs, strict=True)),
        tuple(_describe(value.name, value) for value in graph.overridable),
        graph.about,
        table_rows(graph),
        demands_on_dims(graph, facts),
        _onnx_operators(graph),
        graph.data_files,
    )


def _onnx_operators(graph: Graph) -> dict[str, str]:
    names = dict(graph.onnx_operators)
    for node in graph.nodes:
        for body in node.bodies:
            names |= _onnx_operators(body)
    return names


def _describe(name: str, value: Value) -> TensorInfo:
    from dvm_graph.import_ import declared_shape, type_text

    dims = declared_shape(value) if value.shape is None else value.shape
    shape = tuple(dim if isinstance(dim, int) else str(dim) for dim in dims)
    return TensorInfo(name, shape, type_text(value))
