"""Ranks of results that neither onnx nor onnxruntime infers, though operands' shapes tell them.

In: a vendor node whose operands have shapes where known. Out: the rank of its results, or None.

Operators whose size is in the contents of a one-dimensional operand have a rank as soon as that
operand's length is a number, whatever its contents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dvm_graph.ir import Node

_MOST_AXES = 64
"""Of an array of numpy. An operand may be declared to be as long as numbers go."""

_Rule = Callable[[Node], "int | None"]
"""The rank of all results."""


def result_ranks(node: Node) -> Sequence[int | None]:
    """The ranks of the results of an ONNX operator; None where one is not known, or nobody has such tensors."""
    operator = node.attrs.get("op", node.op), node.attrs.get("domain", node.domain)
    if operator in _CLASSIFIERS:
        return (1, 2)[: len(node.outputs)]
    rule = _RULES.get(operator)
    rank = None if rule is None else rule(node)
    return (None if rank is None or rank > _MOST_AXES else rank,) * len(node.outputs)


def _rank(node: Node, index: int) -> int | None:
    value = node.operand(index)
    return None if value is None or value.shape is None else len(value.shape)


def _length(node: Node, index: int) -> int | None:
    """The number of elements of a one-dimensional operand."""
    value = node.operand(index)
    if value is None or value.shape is None or len(value.shape) != 1:
        return None
    (extent,) = value.shape
    return extent if isinstance(extent, int) else None


def _always(rank: int) -> _Rule:
    return lambda node: rank


def _as_operand(index: int, more: int = 0) -> _Rule:
    def rule(node: Node) -> int | None:
        rank = _rank(node, index)
        return None if rank is None else rank + more

    return rule


def _length_of(index: int, more: int = 0) -> _Rule:
    def rule(node: Node) -> int | None:
        length = _length(node, index)
        return None if length is None else length + more

    return rule


def _changed_by_length(index: int, sign: int) -> _Rule:
    def rule(node: Node) -> int | None:
        rank, length = _rank(node, 0), _length(node, index)
        return None if rank is None or length is None else rank + sign * length

    return rule


def _expanded(node: Node) -> int | None:
    rank, length = _rank(node, 0), _length(node, 1)
    return None if rank is None or length is None else max(rank, length)


def _reduced(node: Node) -> int | None:
    if node.attrs.get("keepdims", 1):
        return _rank(node, 0)
    if node.operand(1) is None or node.attrs.get("noop_with_empty_axes", 0):
        return None
    return 0 if _length(node, 1) == 0 else _without_axes(node)


def _without_axes(node: Node) -> int | None:
    """Of several axes one may be told twice, and no axes at all are not none."""
    return _changed_by_length(1, -1)(node) if _length(node, 1) == 1 else None


_SAME = (
    "CenterCropPad CumSum Pad Resize Slice Split Tile TopK Upsample RandomNormalLike "
    "RandomUniformLike Trilu ScatterElements ScatterND"
)
_REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare"
)

_OF_ONNX: dict[str, _Rule] = {
    **dict.fromkeys(_SAME.split(), _as_operand(0)),
    **dict.fromkeys(_REDUCTIONS.split(), _reduced),
    "AffineGrid": _length_of(1),
    "Col2Im": _length_of(1, 2),
    "ConstantOfShape": _length_of(0),
    "Expand": _expanded,
    "Flatten": _always(2),
    "MaxUnpool": _as_operand(0),
    "NonZero": _always(2),
    "OneHot": _as_operand(0, 1),
    "Range": _always(1),
    "Reshape": _length_of(1),
    "Shape": _always(1),
    "Size": _always(0),
    "Squeeze": _without_axes,
    "Unsqueeze": _changed_by_length(1, 1),
}

_OF_CLASSICAL: dict[str, _Rule] = {
    **dict.fromkeys(("Imputer", "LabelEncoder", "Normalizer", "Scaler"), _as_operand(0)),
    **dict.fromkeys(("LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor"), _always(2)),
    "FeatureVectorizer": _always(2),
}
_CLASSIFIERS = [
    (op, "ai.onnx.ml") for op in ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")
]
"""They give labels and scores of a batch; of one element, where the operand has no axis for it."""
_RULES: dict[tuple[str, str], _Rule] = {
    **{(op, ""): rule for op, rule in _OF_ONNX.items()},
    **{(op, "ai.onnx.ml"): rule for op, rule in _OF_CLASSICAL.items()},
}
