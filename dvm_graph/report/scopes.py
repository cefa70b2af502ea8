"""Where in the exported model an operator comes from, and how that orders a picture in columns.

The scope of an operator is the dotted path of the module that called it: from the metadata that
torch writes (`pkg.torch.onnx.name_scopes`), else from names like `/encoder/layer.0/MatMul`. A layer
is a scope that ends in a number; a picture has one column for each layer, in running order.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dvm_graph.report.report import Subgraph

_SCOPES_KEY = "pkg.torch.onnx.name_scopes"
_LARGEST_SINGLE_COLUMN = 20
_CHUNK = 14


@dataclass(frozen=True, slots=True)
class Column:
    """Subgraphs to be drawn below each other."""

    title: str
    subgraphs: tuple[int, ...]
    """Indices into `Report.subgraphs`, ascending."""


def scope_of(metadata: Mapping[str, str], onnx_nodes: Sequence[str]) -> str:
    """The module an operator belongs to, "" where nothing tells."""
    scopes = _torch_scopes(metadata.get(_SCOPES_KEY, ""))
    if len(scopes) > 1:
        return scopes[-2]
    for name in onnx_nodes:
        if name.startswith("/"):
            return ".".join(name.strip("/").split("/")[:-1])
    return ""


def _torch_scopes(text: str) -> list[str]:
    try:
        scopes = ast.literal_eval(text) if text else []
    except (SyntaxError, ValueError):
        return []  # other exporters may use the key in their own way
    return [str(scope) for scope in scopes] if isinstance(scopes, list) else []


def layer_of(scope: str) -> str | None:
    """The scope up to its first number: "encoder.layer.0.output" is of "encoder.layer.0"."""
    parts = scope.split(".")
    for index, part in enumerate(parts):
        if part.isdigit() and index > 0:
            return ".".join(parts[: index + 1])
    return None


def arrange(subgraphs: Sequence[Subgraph]) -> list[Column]:
    """Columns in running order: the layers where the model has any, else equal chunks."""
    layers = [layer_of(subgraph.scope) for subgraph in subgraphs]
    if len(set(layers) - {None}) < 2:
        return _chunks(subgraphs)
    columns: dict[str, list[int]] = {}
    last = max(index for index, layer in enumerate(layers) if layer is not None)
    current = ""
    for index, layer in enumerate(layers):
        if layer is not None:
            current = layer
        elif index > last:
            current = "(end)"
        columns.setdefault(current, []).append(index)
    titles = {key: key if layer_of(key) else _modules(subgraphs, columns[key]) for key in columns}
    return [Column(titles[key], tuple(members)) for key, members in columns.items()]


def _chunks(subgraphs: Sequence[Subgraph]) -> list[Column]:
    count = len(subgraphs)
    if count <= _LARGEST_SINGLE_COLUMN:
        return [Column("", tuple(range(count)))]
    chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
    return [Column(f"kernels {chunk[0]} to {chunk[-1]}", tuple(chunk)) for chunk in chunks]


def _modules(subgraphs: Sequence[Subgraph], members: Sequence[int]) -> str:
    roots = dict.fromkeys(subgraphs[index].scope for index in members)
    return ", ".join([scope for scope in roots if scope][:3])
