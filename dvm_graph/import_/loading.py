"""Finding and parsing the model: path, bytes or ModelProto.

Out: an `ImportedModel`, the parsed model without its external data, with model-local functions
inlined. The model is checked as far as its header goes; nodes are checked by `importer`.
Never changes a ModelProto that the caller passed.
"""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import onnx
import onnx.checker
import onnx.inliner
import onnx.shape_inference
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from dvm_graph.errors import (
    DamagedError,
    InputError,
    LimitError,
    ModelError,
    OutOfMemoryError,
    UnsupportedError,
    checked_path,
)
from dvm_graph.import_.attributes import subgraphs
from dvm_graph.import_.external_data import READ_UP_TO
from dvm_graph.import_.schemas import signature
from dvm_graph.import_.vendor_library import kernels
from dvm_graph.process import MappedFile

Source: TypeAlias = str | PathLike[str] | bytes | onnx.ModelProto

OLDEST_OPSET = 7
_NOT_INLINED = (
    *(RuntimeError, ValueError, onnx.checker.ValidationError),
    onnx.shape_inference.InferenceError,
)


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A parsed model. `initializers` are those of the main graph (which `proto` may lack)."""

    proto: onnx.ModelProto
    initializers: tuple[onnx.TensorProto, ...]
    folder: Path | None
    opsets: dict[str, int]
    """Version by domain; the default domain is spelled ""."""


def load_model(source: Source, max_nodes: int) -> ImportedModel:
    """Parses a model and inlines its functions.

    Raises:
        InputError: it is neither a path, bytes nor a ModelProto.
        LimitError: its functions would make more nodes than `max_nodes` (`Options.max_nodes`).
        ModelError: not an ONNX model, or truncated.
        UnsupportedError: operators as they were before opset 7, or an opset newer than the installed onnx knows.
    """
    model, folder = _parse(source)
    _check_text(model)
    if not model.HasField("graph"):
        raise ModelError("not an ONNX model: it has no graph (is the file truncated?)")
    opsets = opset_versions(model.opset_import)
    if _would_be_same(model, opsets, OLDEST_OPSET):
        opsets[""] = OLDEST_OPSET
    _check_opset(opsets)
    initializers = tuple(model.graph.initializer)
    functions = _own_functions(model)
    used = _callees(functions)
    _check_size(model, used, max_nodes)
    if model.functions:
        model = _inline_functions(model, functions, _levels(used))
    return ImportedModel(model, initializers, folder, opsets)


def opset_versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Version by domain from `opset_import` of a model or function."""
    return {default_domain(entry.domain): entry.version for entry in imports}


def default_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _parse(source: Source) -> tuple[onnx.ModelProto, Path | None]:
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _decode(bytes(source), "the given bytes"), None
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(
            f"a model is a path, bytes or onnx.ModelProto, not {type(source).__name__}"
        )
    path = checked_path(source)
    try:
        content = _contents(path)
    except OSError as error:
        raise ModelError(f"cannot read model {str(path)!r}: {error.strerror}") from error
    return _decode(content, repr(str(path))), path.parent


def _contents(path: Path) -> bytes | memoryview:
    """Weights of a large file are copied once, by the parser, from its pages."""
    if path.stat().st_size <= READ_UP_TO:  # or it is none: pipes have no size
        return path.read_bytes()
    return memoryview(MappedFile.open(path))


def _decode(content: bytes | memoryview, what: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        if "alloc" in str(error).lower():  # the parser has one error for everything
            raise OutOfMemoryError(f"{what}: no memory to parse it") from error
        raise DamagedError(f"{what}: truncated, or not an ONNX model: {error}") from error
    return model


_UNREAD = onnx.NodeProto.DESCRIPTOR.fields_by_name["metadata_props"]
"""Of what a model says, what only reports read (`metadata.NodeMetadata`)."""


def _check_text(message: Message) -> None:
    """Strings that are no UTF-8 would turn up as bytes wherever a name is read."""
    for descriptor, value in message.ListFields():
        if descriptor is _UNREAD:
            continue
        if descriptor.type == FieldDescriptor.TYPE_STRING:
            for text in [value] if isinstance(value, (str, bytes)) else value:
                if not isinstance(text, str):
                    raise DamagedError(
                        f"{descriptor.full_name} holds {text[:40]!r}, which is no text"
                    )
        elif descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            for part in [value] if isinstance(value, Message) else value:
                if isinstance(part, onnx.TensorProto):
                    _check_tensor_text(part)
                elif not _PLAIN.get(type(part), _never)(part):
                    _check_text(part)


_NODE_TEXTS = operator.attrgetter(
    *(
        field.name
        for field in onnx.NodeProto.DESCRIPTOR.fields
        if field.type == FieldDescriptor.TYPE_STRING and field.name not in ("input", "output")
    )
)
_ATTRIBUTE = operator.attrgetter("type", "name", "ref_attr_name", "doc_string")
_DIM_TEXTS = operator.attrgetter("dim_param", "denotation")
_NUMBERS = frozenset({onnx.AttributeProto.INT, onnx.AttributeProto.INTS, onnx.AttributeProto.FLOAT})
_ARE_TEXTS = frozenset({str})


def _is_plain_text(node: onnx.NodeProto) -> bool:
    """Whether a node holds text and numbers only: most do, and it takes a fraction of the time to see."""
    texts = [*_NODE_TEXTS(node), *node.input, *node.output]
    for kind, name, *more in map(_ATTRIBUTE, node.attribute):
        if kind not in _NUMBERS or any(more):
            return False
        texts.append(name)
    return _ARE_TEXTS.issuperset(map(type, texts))


def _is_plain_type(info: onnx.ValueInfoProto) -> bool:
    """As `_is_plain_text`, of a tensor's type and shape."""
    own = info.type
    if not own.HasField("tensor_type") or len(info.ListFields()) > bool(info.name) + 1:
        return False
    texts = [info.name, own.denotation]
    for dim in own.tensor_type.shape.dim:
        texts += _DIM_TEXTS(dim)
    return _ARE_TEXTS.issuperset(map(type, texts))


def _never(_: Message) -> bool:
    return False


_PLAIN: dict[type[Message], Callable[[Any], bool]] = {
    onnx.NodeProto: _is_plain_text,
    onnx.ValueInfoProto: _is_plain_type,
}


def _check_tensor_text(tensor: onnx.TensorProto) -> None:
    """As `_check_text`, without taking the contents into Python."""
    entries = [text for entry in tensor.external_data for text in (entry.key, entry.value)]
    for text in (tensor.name, *entries):
        if not isinstance(text, str):
            raise DamagedError(f"a tensor's entry {text[:40]!r} is no text")


def _check_opset(opsets: dict[str, int]) -> None:
    version = opsets.get("")
    newest = onnx.defs.onnx_opset_version()
    if version is None:
        if not opsets:
            raise ModelError("not an ONNX model: it imports no operator set")
    elif version < OLDEST_OPSET:
        raise UnsupportedError(
            f"the model uses opset {version}, older than {OLDEST_OPSET}; "
            "raise it with onnx.version_converter.convert_version(model, 13)"
        )
    elif version > newest:
        raise UnsupportedError(
            f"the model uses opset {version}, but the installed onnx {onnx.__version__} "
            f"knows up to {newest}; upgrade onnx"
        )


def _would_be_same(model: onnx.ModelProto, opsets: Mapping[str, int], version: int) -> bool:
    """Whether the model is older than a version of the default domain in which all that it uses was as it had been.

    Converters of scikit-learn's pipelines ask for the oldest version that has what they use.
    """
    own = opsets.get("", version)
    if not 0 < own < version or model.functions:
        return False
    used = {
        node.op_type for node in every_node(model.graph.node) if not default_domain(node.domain)
    }
    schemas = [(signature(op, "", own), signature(op, "", version)) for op in used]
    return all(old and new and old.since_version == new.since_version for old, new in schemas)


def _own_functions(model: onnx.ModelProto) -> list[onnx.FunctionProto]:
    """The functions of a model, without those that have the name of an operator.

    ONNX leaves it to the runtime which of the two a node means. As in onnxruntime it is the operator,
    where the opset that the model imports has one that can be run.
    """
    versions = opset_versions(model.opset_import)
    return [f for f in model.functions if not _is_operator(f, versions)]


def _is_operator(function: onnx.FunctionProto, versions: Mapping[str, int]) -> bool:
    domain = default_domain(function.domain)
    if domain not in versions or not (domain == "" or domain.startswith(_OPERATOR_DOMAINS)):
        return False
    known = signature(function.name, domain, versions[domain])
    return known is not None and (
        known.definition is not None or bool(kernels(function.name, domain, known.since_version))
    )


def _inline_functions(
    model: onnx.ModelProto,
    functions: Sequence[onnx.FunctionProto],
    levels: Sequence[Collection[_Function]],
) -> onnx.ModelProto:
    """Inlines `functions` in a copy whose initializers are stubs: weights stay put.

    `levels` are their names, callers before callees.
    """
    graph = model.graph
    light = onnx.ModelProto(
        ir_version=model.ir_version,
        opset_import=model.opset_import,
        functions=functions,
        metadata_props=model.metadata_props,
        producer_name=model.producer_name,
        domain=model.domain,
        doc_string=model.doc_string,
        graph=onnx.GraphProto(
            name=graph.name,
            doc_string=graph.doc_string,
            node=graph.node,
            input=graph.input,
            output=graph.output,
            value_info=graph.value_info,
            sparse_initializer=graph.sparse_initializer,
            metadata_props=graph.metadata_props,
            initializer=[onnx.TensorProto(name=tensor.name) for tensor in graph.initializer],
        ),
    )
    if model.HasField("model_version"):
        light.model_version = model.model_version
    _keep_versions(light)
    try:
        if any(function.attribute_proto for function in functions):
            light = _inline_with_defaults(light, levels)
        return onnx.inliner.inline_local_functions(light, convert_version=False)
    except _NOT_INLINED as error:
        raise ModelError(f"the model's functions cannot be inlined: {error}") from error


def _inline_with_defaults(
    model: onnx.ModelProto, levels: Iterable[Collection[_Function]]
) -> onnx.ModelProto:
    """Inlines functions with the defaults of attributes that calls omit, callers before callees.

    The inliner does not know defaults. What a call inside of a function omits shows once that
    function is inlined: an attribute that it hands on may have been omitted by its own caller.
    """
    defaults = {_name(function): function.attribute_proto for function in model.functions}
    for level in levels:
        for node in every_node(model.graph.node):
            if _callee(node) in level:
                given = {attribute.name for attribute in node.attribute}
                node.attribute.extend(a for a in defaults[_callee(node)] if a.name not in given)
        model = onnx.inliner.inline_selected_functions(model, [name[:2] for name in level])
    return model


_VERSION = "dvm_graph.opset"
"""Metadata of nodes that come from functions of other operator sets than the model's: their version."""


def _keep_versions(model: onnx.ModelProto) -> None:
    """Lets nodes of functions name their operator set's version where it is not the model's.

    So nodes mean after inlining what they meant before it. The inliner could convert them instead, but
    knows few of the changes, and crashes on some models that onnxruntime runs.
    """
    versions = opset_versions(model.opset_import)
    for function in model.functions:
        own = opset_versions(function.opset_import)
        for node in every_node(function.node):
            domain = default_domain(node.domain)
            if own.get(domain, versions.get(domain)) != versions.get(domain):
                node.metadata_props.add(key=_VERSION, value=str(own[domain]))
        added = [o for o in function.opset_import if default_domain(o.domain) not in versions]
        del function.opset_import[:]
        function.opset_import.extend((*model.opset_import, *added))


def own_version(node: onnx.NodeProto) -> tuple[onnx.NodeProto, bytes, int | None]:
    """A node as it was in its function, serialised as well, and the version of its operator set where that is not the
    model's.
    """
    source: bytes = node.SerializeToString()
    if _VERSION.encode() not in source:
        return node, source, None
    kept = [entry for entry in node.metadata_props if entry.key != _VERSION]
    if len(kept) == len(node.metadata_props):
        return node, source, None
    version = next(entry.value for entry in node.metadata_props if entry.key == _VERSION)
    plain = onnx.NodeProto.FromString(source)
    del plain.metadata_props[:]
    plain.metadata_props.extend(kept)
    return plain, plain.SerializeToString(), int(version)


_Function: TypeAlias = tuple[str, str, str]
"""Domain, name and overload."""

_OPERATOR_DOMAINS = ("ai.onnx.", "com.microsoft")


def _name(function: onnx.FunctionProto) -> _Function:
    return default_domain(function.domain), function.name, function.overload


def _callee(node: onnx.NodeProto) -> _Function:
    return default_domain(node.domain), node.op_type, node.overload


def _callees(functions: Iterable[onnx.FunctionProto]) -> dict[_Function, Counter[_Function]]:
    """How often each function of a model uses which operators; callees stand before callers.

    Raises:
        ModelError: functions call themselves, or one is defined twice.
    """
    used: dict[_Function, Counter[_Function]] = {}
    for function in functions:
        caller = _name(function)
        if caller in used:
            raise ModelError(f"function {caller[1]!r} is defined twice")
        used[caller] = _operators(function.node)
    try:
        order = list(TopologicalSorter(used).static_order())
    except CycleError as error:
        called = reversed(error.args[1])  # each in the list is called by the next
        names = " -> ".join(name for _, name, _ in called)
        raise ModelError(f"functions of the model call themselves: {names}") from None
    return {name: used[name] for name in order if name in used}


def _levels(used: dict[_Function, Counter[_Function]]) -> list[list[_Function]]:
    """Functions by how deep calls of them are nested at most, those that no other calls first."""
    depths = dict.fromkeys(used, 0)
    for caller in reversed(used):  # callees stand before callers
        for callee in used[caller].keys() & used.keys():
            depths[callee] = max(depths[callee], depths[caller] + 1)
    return [
        [function for function in used if depths[function] == depth]
        for depth in sorted(set(depths.values()))
    ]


def _operators(nodes: Iterable[onnx.NodeProto]) -> Counter[_Function]:
    return Counter(map(_callee, every_node(nodes)))


def _check_size(
    model: onnx.ModelProto, used: Mapping[_Function, Counter[_Function]], most: int
) -> None:
    """Functions that call others twice double with each level."""
    sizes: dict[_Function, int] = {}
    for name, uses in used.items():
        sizes[name] = sum(count * sizes.get(callee, 1) for callee, count in uses.items())
    if sizes:
        uses = _operators(model.graph.node)
        size = sum(count * sizes.get(callee, 1) for callee, count in uses.items())
    else:
        size = sum(1 for _ in every_node(model.graph.node))
    if size > most:
        raise LimitError(
            f"the model has {size} nodes once its functions are expanded, more than "
            f"max_nodes={most}; raise the option to go on"
        )


def every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes and those of their subgraphs, outer first."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from every_node(graph.node)
