"""ONNX in: a model becomes a graph of ONNX operators.

In: a path, bytes or ModelProto. Out: a `Graph` whose nodes are ONNX operators in their newest form
(`normalize_opset`), attributes with defaults filled in, initializers and Constant nodes as constant
values, model-local functions inlined.

Invariants of the result:
  * Inputs have dtype and, if the model says so, a shape, dims parsed; results have a dtype where the operator's schema tells
    it (OPAQUE otherwise) and no shape: decomposition deduces both.
  * An initializer that is also a graph input is a constant, not an input, unless
    `options.fed_initializers` name it.
  * A control-flow node's `regions` are closed: what a body takes from outside is appended to the
    node's operands and to the inputs of each of its regions, after the body's own inputs. `attrs`
    holds `regions` (attribute name of each region) and `captures` (the ONNX name of each captured
    value, in the order appended).
  * `source` is the NodeProto as it was in the model; its operands are a prefix of `Node.inputs`.

Does not check types or shapes of operands; decomposition does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from dvm_graph.errors import DamagedError, InputError, ModelError
from dvm_graph.import_.attributes import GRAPH_TYPES, names_read, read_attributes
from dvm_graph.import_.blocked_channels import plain_channels
from dvm_graph.import_.external_data import ExternalData
from dvm_graph.import_.loading import (
    ImportedModel,
    Source,
    default_domain,
    load_model,
    own_version,
)
from dvm_graph.import_.metadata import NodeMetadata
from dvm_graph.import_.normalize_opset import normalize
from dvm_graph.import_.schemas import Signature, signature
from dvm_graph.import_.tensors import dtype_of_array, sparse_to_array, tensor_to_array
from dvm_graph.import_.types import declared_type, read_holding, read_type
from dvm_graph.import_.vendor_library import newest_version
from dvm_graph.ir import Array, Dim, DType, Graph, ModelMetadata, Node, Value
from dvm_graph.options import Options
from dvm_graph.symbolic import Symbols, parse_dim, unsolved_dims

_REGION_ORDER = {"then_branch": 0, "else_branch": 1}


def import_onnx(source: Source, options: Options, symbols: Symbols) -> Graph:
    """Imports a model.

    Args:
        source: path, bytes or ModelProto.
        options: `dim_hints` have to name dims of the model.
        symbols: gets the model's dim symbols.

    Raises:
        ModelError: the model is malformed; the message names the node or tensor.
        ExternalDataError: its external data are missing or outside its folder.
        UnsupportedError: an opset that is too old.
        InputError: a dim hint for a dim that the model does not have.
    """
    model = load_model(source, options.max_nodes)
    graph = Graph(model.proto.graph.name or "main")
    external = ExternalData(model.folder, private=options.private_weights)
    importer = Importer(
        model.opsets,
        external,
        symbols,
        dims_by_name=options.dims_by_name,
        scalar_ranks=options.scalar_ranks,
    )
    fed = options.fed_initializers
    overridable = _overridable(model)
    unknown = sorted(fed.difference(overridable))
    if unknown:
        raise InputError(f"fed_initializers name {unknown[0]!r}, which is no input with a default")
    initializers = [tensor for tensor in model.initializers if tensor.name not in fed]
    scope = importer.import_graph(graph, model.proto.graph, initializers)
    graph.overridable = [scope.values[name] for name in overridable if name not in fed]
    graph.about = _metadata(model.proto)
    if options.cache:
        graph.data_files = external.digests()
    unknown = sorted(set(options.scalar_ranks) - {info.name for info in model.proto.graph.input})
    if unknown:
        raise InputError(f"scalar_ranks name {unknown[0]!r}, which is no input of the model")
    for name in options.dim_hints:
        if name not in symbols:
            raise InputError(f"dim_hints name {name!r}, which is no dim of the model's inputs")
    return graph


def _overridable(model: ImportedModel) -> list[str]:
    """Initializers that are inputs as well; before version 4, all had to be."""
    if model.proto.ir_version < 4:
        return []
    inputs = {info.name for info in model.proto.graph.input}
    return [tensor.name for tensor in model.initializers if tensor.name in inputs]


def _metadata(model: onnx.ModelProto) -> ModelMetadata:
    version = {"version": model.model_version} if model.HasField("model_version") else {}
    return ModelMetadata(
        producer_name=model.producer_name,
        graph_name=model.graph.name,
        domain=model.domain,
        description=model.doc_string,
        graph_description=model.graph.doc_string,
        custom_metadata_map={entry.key: entry.value for entry in model.metadata_props},
        **version,
    )


@dataclass(slots=True)
class Scope:
    """ONNX names that are visible in one graph."""

    graph: Graph
    parent: Scope | None = None
    values: dict[str, Value] = field(default_factory=dict)
    captures: dict[str, tuple[Value, Value]] = field(default_factory=dict)
    """Of a region: outer value and the region's own input for it."""

    def find(self, name: str) -> Value | None:
        """The value of a name, captured from an outer graph if need be."""
        value = self.values.get(name)
        if value is None and self.parent is not None:
            outer = self.parent.find(name)
            if outer is not None:
                value = self._capture(name, outer)
        return value

    def _capture(self, name: str, outer: Value) -> Value:
        inner = Value(
            self.graph.unique_name(name), outer.dtype, outer.shape, opaque_type=outer.opaque_type
        )
        self.captures[name] = (outer, inner)
        self.values[name] = inner
        return inner

    def define(self, name: str, value: Value, where: str) -> None:
        if name in self.values:
            raise ModelError(f"{where} defines {name!r}, which is defined already")
        self.values[name] = value


@dataclass(frozen=True, slots=True)
class Provenance:
    """What imported nodes inherit: of a model nothing, of a function body its call's identity."""

    prefix: str = ""
    origin: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


class Importer:
    """Converts GraphProtos and NodeProtos of one model or function body."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        external: ExternalData,
        symbols: Symbols,
        provenance: Provenance | None = None,
        *,
        dims_by_name: bool = True,
        scalar_ranks: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._opsets = opsets
        self._external = external
        self._symbols = symbols
        self._provenance = provenance or Provenance()
        self._dims_by_name = dims_by_name
        self._scalar_ranks = scalar_ranks
        self._free: dict[Dim, Dim] = {}
        """Dims of inputs that nothing can be solved from, as the symbols that they become."""

    # -- graphs

    def import_graph(
        self,
        graph: Graph,
        proto: onnx.GraphProto,
        initializers: Iterable[onnx.TensorProto],
        parent: Scope | None = None,
    ) -> Scope:
        """Fills a graph from a GraphProto. External data that nothing reads may be missing."""
        scope = Scope(graph, parent)
        nodes, initializers = plain_channels(
            proto,
            list(initializers),
            lambda tensor: tensor_to_array(tensor, self._external),
            self._opsets.get("", 0),
        )
        read = {name for node in nodes for name in names_read(node)}
        read.update(info.name for info in (*proto.input, *proto.output))
        kept = (t for t in initializers if t.name in read or not _is_external(t))
        self._import_initializers(scope, kept, proto.sparse_initializer)
        self._import_inputs(scope, proto.input)
        if parent is None:
            self._free_unsolved_dims(graph)
            self._symbols.end_of_inputs()
        for node in self.import_nodes(scope, nodes, {}):
            graph.add(node)
        _keep_declared_types(scope, proto, named=self._dims_by_name)
        names = []
        for info in proto.output:
            value = scope.find(info.name)
            if value is None:
                raise ModelError(f"output {info.name!r} of the model is defined nowhere")
            graph.outputs.append(value)
            names.append(info.name)
        graph.output_names = tuple(names)
        return scope

    def _import_initializers(
        self,
        scope: Scope,
        initializers: Iterable[onnx.TensorProto],
        sparse: Iterable[onnx.SparseTensorProto],
    ) -> None:
        for tensor in initializers:
            if not tensor.name:
                raise ModelError("an initializer of the model has no name")
            array = tensor_to_array(tensor, self._external)
            value = constant(scope.graph, array, tensor.name)
            scope.define(tensor.name, value, "an initializer")
        for sparse_tensor in sparse:
            name = sparse_tensor.values.name
            value = constant(scope.graph, sparse_to_array(sparse_tensor, self._external), name)
            scope.define(name, value, "a sparse initializer")

    def _import_inputs(self, scope: Scope, infos: Sequence[onnx.ValueInfoProto]) -> None:
        seen: set[str] = set()
        for info in infos:
            if info.name in seen or not info.name:
                raise ModelError(f"input {info.name!r} of the model is declared twice or nameless")
            seen.add(info.name)
            if info.name in scope.values:
                continue
            dtype, shape = read_type(info.type, functools.partial(self._dim, info.name))
            if shape == () and scope.parent is None:
                axes = range(self._scalar_ranks.get(info.name, 0))
                shape = tuple(self._symbols.fresh(f"{info.name}_dim{axis}") for axis in axes)
            value = Value(scope.graph.unique_name(info.name), dtype, shape)
            if dtype is DType.OPAQUE:
                value.opaque_type = declared_type(info.type, named=self._dims_by_name)
                value.holds = read_holding(info.type)
            scope.define(info.name, value, "an input")
            scope.graph.inputs.append(value)

    def _free_unsolved_dims(self, graph: Graph) -> None:
        """Gives dims of inputs that nothing can be solved from (`batch*heads`, where no input tells
        either) symbols of their own: to onnxruntime their texts are names and nothing else.
        """
        shapes = [value.shape for value in graph.inputs if value.computable and value.shape]
        for dim in unsolved_dims(shapes):
            self._free[dim] = self._symbols.fresh(str(dim))
        for value in graph.inputs:
            if value.shape is not None:
                value.shape = tuple(self._free.get(dim, dim) for dim in value.shape)

    def _dim(self, name: str, dim: onnx.TensorShapeProto.Dimension, axis: int) -> Dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            return dim.dim_value
        if dim.dim_param and self._dims_by_name:
            parsed = parse_dim(dim.dim_param, self._symbols)
            if not isinstance(parsed, int) or parsed >= 0:
                return self._free.get(parsed, parsed)
        return self._symbols.fresh(f"{name}_dim{axis}")

    # -- nodes

    def import_nodes(
        self, scope: Scope, nodes: Sequence[onnx.NodeProto], declared: Mapping[str, Value]
    ) -> Iterator[Node]:
        """Converts nodes one by one; the caller may add each to the graph. Those without results are
        nobody's, whatever they are.

        `declared` holds values of results that exist before; others are made.
        """
        values = self._declare_results(scope, nodes, declared)
        for node in _in_order(nodes):
            if not any(node.output):
                continue
            if node.op_type == "Constant" and default_domain(node.domain) == "":
                self._import_constant(scope, node)
            else:
                yield self._import_node(scope, node, values)

    def _declare_results(
        self, scope: Scope, nodes: Sequence[onnx.NodeProto], declared: Mapping[str, Value]
    ) -> dict[str, Value]:
        """Values of all results up front, so that they keep their ONNX names."""
        values: dict[str, Value] = {}
        defined: set[str] = set()
        for node in nodes:
            for name in filter(None, node.output):
                if name in defined or name in scope.values:
                    raise ModelError(
                        f"node {_label(node)} defines {name!r}, which is defined already"
                    )
                defined.add(name)
                if name in declared:
                    values[name] = declared[name]
                elif node.op_type != "Constant":
                    unique = scope.graph.unique_name(self._provenance.prefix + name)
                    values[name] = Value(unique, DType.OPAQUE)
        return values

    def _import_constant(self, scope: Scope, node: onnx.NodeProto) -> None:
        where = f"node {_label(node)}"
        _, _, version = own_version(node)
        schema = signature("Constant", "", version or self._version("", where))
        if len(node.attribute) != 1 or len(node.output) != 1 or node.input:
            raise ModelError(f"{where}: Constant takes one attribute and gives one result")
        ((name, content),) = read_attributes(node, where, schema, self._external).items()
        stem = self._provenance.prefix + node.output[0]
        value = constant(scope.graph, constant_array(name, content), stem)
        scope.define(node.output[0], value, where)

    def _import_node(
        self, scope: Scope, proto: onnx.NodeProto, values: Mapping[str, Value]
    ) -> Node:
        where = f"node {_label(proto)}"
        domain = default_domain(proto.domain)
        proto, source, version = own_version(proto)
        version = self._version(domain, where) if version is None else version
        schema = _checked_signature(proto, where, domain, version)
        operands = [self._operand(scope, name, where) for name in proto.input]
        attrs = read_attributes(proto, where, schema, self._external)
        regions, captured = self._import_regions(scope, proto, attrs, where)
        node = Node(
            name=scope.graph.unique_name(self._provenance.prefix + (proto.name or proto.op_type)),
            op=proto.op_type,
            inputs=(*operands, *captured),
            outputs=tuple(
                [
                    values[name] if name else Value(scope.graph.unique_name("unused"), DType.OPAQUE)
                    for name in proto.output
                ]
            ),
            attrs=attrs,
            domain=domain,
            version=version,
            origin=self._provenance.origin
            or (proto.name or f"{proto.op_type}:{_first_output(proto)}",),
            metadata=self._provenance.metadata or NodeMetadata(source),
            source=source,
            regions=regions,
        )
        finish_node(scope.graph, node, schema)
        for name in filter(None, proto.output):
            scope.define(name, values[name], where)
        return node

    def _operand(self, scope: Scope, name: str, where: str) -> Value | None:
        if not name:
            return None
        value = scope.find(name)
        if value is None:
            raise ModelError(f"{where} reads {name!r}, which nothing defines")
        return value

    def _version(self, domain: str, where: str) -> int:
        version = self._opsets.get(domain)
        if version is None and domain:
            version = newest_version(domain)
        if version is None:
            raise ModelError(
                f"{where}: the model imports no operator set for domain {domain or 'ai.onnx'!r}"
            )
        return version

    def _import_regions(
        self, scope: Scope, proto: onnx.NodeProto, attrs: dict[str, Any], where: str
    ) -> tuple[tuple[Graph, ...], list[Value]]:
        bodies = [a for a in proto.attribute if a.type in GRAPH_TYPES]
        if not bodies:
            return (), []
        bodies.sort(key=lambda a: (_REGION_ORDER.get(a.name, 2), a.name))
        scopes: list[Scope] = []
        for attribute in bodies:
            body = attribute.g
            region = scope.graph.new_region(body.name or attribute.name)
            scopes.append(self.import_graph(region, body, body.initializer, scope))
        names = list(dict.fromkeys(name for inner in scopes for name in inner.captures))
        for inner in scopes:
            for name in names:
                inner.find(name)
                if name not in inner.captures:
                    raise ModelError(
                        f"{where} has a body that defines {name!r}, which another of its bodies reads from outside"
                    )
            inner.graph.inputs += [inner.captures[name][1] for name in names]
        captured = [next(s.captures[n][0] for s in scopes if n in s.captures) for n in names]
        attrs["regions"] = tuple(attribute.name for attribute in bodies)
        attrs["captures"] = tuple(names)
        return tuple(inner.graph for inner in scopes), captured


# -- values and nodes


def constant(graph: Graph, array: Array, name: str) -> Value:
    """A constant value, opaque types included."""
    if dtype_of_array(array) is not DType.OPAQUE:
        return graph.constant(array, name)
    tensor_type = onnx.helper.make_tensor_type_proto(_opaque_type(array), array.shape)
    return Value(
        graph.unique_name(name),
        DType.OPAQUE,
        tuple(array.shape),
        array,
        opaque_type=tensor_type.SerializeToString(),
    )


def constant_array(attribute: str, content: Any) -> Array:
    """The contents of a Constant node from its one attribute."""
    if isinstance(content, np.ndarray):
        return content
    dtypes: dict[str, Any] = {"value_float": np.float32, "value_int": np.int64}
    array = np.asarray(content, dtypes.get(attribute.removesuffix("s"), object))
    array.flags.writeable = False
    return array


def finish_node(graph: Graph, node: Node, schema: Signature) -> None:
    """Brings a node to its newest form and gives its results a dtype where that is known."""
    for index, value in enumerate(node.outputs):
        if value.dtype is DType.OPAQUE:
            value.dtype = _result_dtype(node, index, schema)
    if node.domain != "":
        return
    first = node.operand(0)
    dtype = DType.OPAQUE if first is None else first.dtype
    form = normalize(node.op, node.version, dtype, len(node.inputs), node.attrs)
    if form is not None:
        node.op, node.attrs = form.op, form.attrs
        node.inputs += tuple(
            None if array is None else constant(graph, array, f"{node.name}.attribute")
            for array in form.appended
        )


def _keep_declared_types(scope: Scope, proto: onnx.GraphProto, *, named: bool) -> None:
    for infos in (proto.value_info, proto.output):
        for info in infos:
            value = scope.values.get(info.name)
            if value is not None and value.producer is not None and info.HasField("type"):
                value.opaque_type = declared_type(info.type, named=named)


def _result_dtype(node: Node, index: int, schema: Signature) -> DType:
    if not node.regions:
        return schema.result_dtype(index, node.inputs, node.attrs)
    # The first result of a Loop's body is its condition.
    results = node.regions[0].outputs[1 if node.op == "Loop" else 0 :]
    return results[index].dtype if index < len(results) else DType.OPAQUE


def _opaque_type(array: Array) -> int:
    if array.dtype == object:
        return onnx.TensorProto.STRING
    return onnx.helper.np_dtype_to_tensor_dtype(array.dtype)


def _label(node: onnx.NodeProto) -> str:
    return f"{node.name or _first_output(node)!r} ({node.op_type})"


def _first_output(node: onnx.NodeProto) -> str:
    return node.output[0] if node.output else ""


def _checked_signature(node: onnx.NodeProto, where: str, domain: str, version: int) -> Signature:
    schema = signature(node.op_type, domain, version)
    if schema is None:
        raise ModelError(
            f"{where}: unknown operator {node.op_type!r} of domain {domain or 'ai.onnx'!r} "
            f"version {version}: neither an operator of ONNX or onnxruntime nor a function of the model"
        )
    if not schema.min_inputs <= len(node.input) <= schema.max_inputs:
        raise ModelError(
            f"{where}: {len(node.input)} operands, but {node.op_type} takes "
            f"{schema.min_inputs} to {schema.max_inputs}"
        )
    for at, given in enumerate(node.input):
        name = schema.needed[min(at, len(schema.needed) - 1)]
        if name and not given:
            one_of_many = schema.variadic and at >= len(schema.needed) - 1
            raise (DamagedError if one_of_many else ModelError)(
                f"{where}: {node.op_type} needs operand {at} ({name}), which is left out"
            )
    if not schema.min_outputs <= len(node.output) <= schema.max_outputs:
        raise ModelError(
            f"{where}: {len(node.output)} results, but {node.op_type} gives "
            f"{schema.min_outputs} to {schema.max_outputs}"
        )
    return schema


# -- order


def _in_order(nodes: Sequence[onnx.NodeProto]) -> Sequence[onnx.NodeProto]:
    """The nodes as they stand if operands come first (as ONNX asks), else sorted.

    Raises:
        ModelError: the nodes form a cycle.
    """
    later = {name for node in nodes for name in node.output if name}
    for node in nodes:
        if not later.isdisjoint(names_read(node)):
            break
        later.difference_update(node.output)
    else:
        return nodes
    import networkx as nx  # for the few models whose nodes are in no order

    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(range(len(nodes)))
    for index, node in enumerate(nodes):
        sources = sorted({producers[name] for name in names_read(node) if name in producers})
        order.add_edges_from((source, index) for source in sources)
    try:
        return [nodes[index] for index in nx.lexicographical_topological_sort(order)]
    except nx.NetworkXUnfeasible:
        cycle = [_label(nodes[edge[0]]) for edge in nx.find_cycle(order)]
        shown = " -> ".join([*cycle[:8], "..."] if len(cycle) > 8 else [*cycle, cycle[0]])
        raise ModelError(f"the graph has a cycle: {shown}") from None


def _is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL
