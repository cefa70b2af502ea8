"""Words that attributes of operators may hold: the standard lists them in prose, and no schema does.

A node with another word is nobody's to interpret but onnxruntime's, which takes some for one of the
listed ones and refuses others. So decompositions, and function bodies, see listed words only.
"""

from __future__ import annotations

from dvm_graph.ir import Node

_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
_REDUCTIONS = ("none", "sum", "mean")
_BY_ATTRIBUTE: dict[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "auto_pad": _PADS,
    "direction": ("LEFT", "RIGHT", "forward", "reverse", "bidirectional"),
}
_BY_OPERATOR: dict[tuple[str, str], tuple[str, ...]] = {
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("NegativeLogLikelihoodLoss", "reduction"): _REDUCTIONS,
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("SoftmaxCrossEntropyLoss", "reduction"): _REDUCTIONS,
    ("Upsample", "mode"): ("nearest", "linear"),
}


def has_odd_words(node: Node) -> bool:
    """Whether a word in an attribute is none of those listed."""
    if node.domain:
        return False
    for name, value in node.attrs.items():
        listed = _BY_OPERATOR.get((node.op, name)) or _BY_ATTRIBUTE.get(name)
        if listed is not None and isinstance(value, str | bytes):
            word = value.decode(errors="replace") if isinstance(value, bytes) else value
            if word not in listed:
                return True
    return False
