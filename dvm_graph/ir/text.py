"""Words of the text form that printer and parser share.

name       letters, digits and `_ . / $ -` as they are, anything else in JSON quotes
dim        the dim's own text, in JSON quotes where it could be mistaken for syntax
element    an entry of a constant: number, `true`, `false`, or a JSON string
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from dvm_graph.ir.dtypes import DType
from dvm_graph.ir.graph import Dim

MAX_INLINE_ELEMENTS = 16
"""Longer constants are elided: `...` stands for their contents."""
ELIDED = "..."

_BARE_NAME = re.compile(r"[\w./$-]+")
_AMBIGUOUS_DIM = re.compile(r"[\[\]{}\"=\n]|//")


def quote_name(name: str) -> str:
    return name if _BARE_NAME.fullmatch(name) else json.dumps(name)


def dim_text(dim: Dim) -> str:
    text = str(dim)
    if isinstance(dim, int) or not _is_ambiguous(text):
        return text
    return json.dumps(text)


def element_text(element: Any) -> str:
    """An entry of a constant or a float attribute, in the shortest form that reads back."""
    if isinstance(element, (bool, np.bool_)):
        return "true" if element else "false"
    if isinstance(element, str):
        return json.dumps(element)
    if isinstance(element, float):
        return repr(float(element))
    return str(element)


def is_literal(text: str) -> bool:
    """Whether the text of an attribute reads as a number or keyword and not as a dim."""
    return text in KEYWORDS or FLOAT.fullmatch(text) is not None


KEYWORDS = {"none": None, "true": True, "false": False}
FLOAT = re.compile(r"-?(\d+\.\d*([eE][+-]?\d+)?|\d+[eE][+-]?\d+|inf|nan)")
SHORT_NAMES = {dtype.short: dtype for dtype in DType}


def _is_ambiguous(text: str) -> bool:
    depth = 0
    for char in text:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0 or (char == "," and depth == 0):
            return True
    return depth != 0 or not text.strip() or _AMBIGUOUS_DIM.search(text) is not None
