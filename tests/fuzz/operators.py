"""What may be drawn: every operator of `onnx.defs` at an opset, by recipe or from its schema alone."""

from __future__ import annotations

import functools
from typing import Any

from onnx import defs

from tests.fuzz import (  # noqa: F401 - they register their recipes
    recipes_attention,
    recipes_called,
    recipes_carried,
    recipes_contrib,
    recipes_contrib_quantised,
    recipes_other,
    recipes_products,
    recipes_quantised,
    recipes_recurrent,
    recipes_reductions,
    recipes_regions,
    recipes_sequences,
    recipes_text,
    recipes_views,
    recipes_windows,
)
from tests.fuzz.growth import DTYPES, Growth, RefusedError, Value, find_schema
from tests.fuzz.registry import ELEMENTWISE, OTHER, RECIPES, into_domain, parse_types

EXCLUDED = {
    "RandomNormal": "random", "RandomNormalLike": "random", "RandomUniform": "random",
    "RandomUniformLike": "random", "Bernoulli": "random", "Multinomial": "random",
    "ImageDecoder": "reads files of pictures",
    "SequenceLength": "see SequenceConstruct", "ConcatFromSequence": "see SequenceConstruct",
    "OptionalGetElement": "see Optional",
    "TfIdfVectorizer": "strings",
    "Constant": "initializers stand for it",
}  # fmt: skip
"""Operators that are not drawn, and why."""

LEFT_OPEN = frozenset(
    (
        "MaxPool", "GlobalMaxPool", "Hardmax", "TopK", "ArgMax", "ArgMin", "LRN", "LpPool", "GlobalLpPool",
        "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LpNormalization",
        "MeanVarianceNormalization", "Attention", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
        "ReduceSumSquare", "ReduceMean", "Mean", "HardSwish", "RNN", "GRU", "LSTM",
        "LayerNormalization", "RMSNormalization", "com.microsoft.SkipLayerNormalization",
        "com.microsoft.SkipSimplifiedLayerNormalization", "DFT", "STFT", "LinearAttention",
        "com.microsoft.Attention", "com.microsoft.QAttention", "com.microsoft.MultiHeadAttention",
        "com.microsoft.GroupQueryAttention", "com.microsoft.EmbedLayerNormalization",
    )
)  # fmt: skip
"""Operators that are not drawn where values are special: the standard leaves it open which of two NaN is
the larger, and infinities and ends of integers take different ways through equal formulas."""

FLOAT_CHOICES = (0.0, 0.5, 1.0, -1.0, 2.0, 0.01)
CHOICES: dict[str, tuple[Any, ...]] = {
    "approximate": ("none", "tanh"),
    "detect_negative": (0, 1),
    "detect_positive": (0, 1),
    "axis": (0, -1),
    "epsilon": (1e-5, 1e-3, 0.1),
    "saturate": (0, 1),
    "to": DTYPES,
    "stash_type": (1,),
}
UNSAFE_INTEGER = frozenset(("Div", "Mod"))


_ALL = sorted({s.name for s in defs.get_all_schemas() if s.domain == ""} - set(EXCLUDED))


@functools.cache
def names(opset: int, kind: str | None = None) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Operators that an opset has, of one kind or of any, with weights."""
    found = []
    for op in (*_ALL, *(op for op in RECIPES if "." in op)):
        try:
            if "." not in op:
                find_schema(op, opset)
        except RefusedError:
            continue
        recipe = RECIPES.get(op)
        is_kind = recipe.kind if recipe else _kind(op, opset)
        if kind is None or is_kind == kind:
            found.append((op, 1.0 if kind is None or recipe is None else recipe.weight))
    return tuple(op for op, _ in found), tuple(weight for _, weight in found)


def _kind(op: str, opset: int) -> str:
    schema = find_schema(op, opset)
    return ELEMENTWISE if 1 <= len(schema.inputs) <= 2 and len(schema.outputs) == 1 else OTHER


def grow(g: Growth, kind: str | None = None) -> Value:
    """Adds a node of an operator, drawn among those of a kind or among all.

    Raises:
        RefusedError: what was drawn does not fit.
    """
    found, weights = names(g.opset, kind)
    if not found:
        raise RefusedError
    op = g.rng.choices(found, weights)[0]
    return draw(g, op)


def draw(g: Growth, op: str) -> Value:
    """Adds a node of an operator: by its recipe, or from its schema alone.

    Raises:
        RefusedError: what was drawn does not fit.
    """
    if g.special and op in LEFT_OPEN:
        raise RefusedError
    recipe = RECIPES.get(op)
    return recipe.draw(g) if recipe else from_schema(g, op)


def from_schema(g: Growth, op: str) -> Value:
    """A node whose operands broadcast with each other, as those of element-wise operators do."""
    schema = find_schema(op, g.opset)
    constraints = {
        c.type_param_str: parse_types(c.allowed_type_strs) for c in schema.type_constraints
    }
    bound: dict[str, int] = {}
    operands: list[Value | None] = []
    first: Value | None = None
    for parameter in schema.inputs:
        if parameter.option == defs.OpSchema.FormalParameterOption.Optional and g.chance(0.5):
            operands.append(None)
            continue
        variadic = parameter.option == defs.OpSchema.FormalParameterOption.Variadic
        for _ in range(g.choose((1, 2, 3)) if variadic else 1):
            allowed = constraints.get(parameter.type_str) or parse_types([parameter.type_str])
            if parameter.type_str in bound:
                allowed = (bound[parameter.type_str],)
            if not allowed:
                raise RefusedError
            value = _operand(g, op, first, allowed)
            bound[parameter.type_str] = value.dtype
            first = first or value
            operands.append(value)
    while operands and operands[-1] is None:
        operands.pop()
    return g.emit(op, operands, attributes(g, schema))


def _operand(g: Growth, op: str, first: Value | None, allowed: tuple[int, ...]) -> Value:
    if first is None:
        value = g.pick(allowed)
        value = g.view(value) if g.chance(0.2) and value.known else value
        return into_domain(g, op, value)
    if first.dtype in allowed:
        return g.partner(first)
    return g.fresh(g.choose(allowed), g.part(first.shapes))


def attributes(g: Growth, schema: defs.OpSchema) -> dict[str, Any]:
    """Values for attributes, half of the optional ones left out."""
    drawn: dict[str, Any] = {}
    for name, attribute in sorted(schema.attributes.items()):
        if not attribute.required and g.chance(0.5):
            continue
        if name in CHOICES:
            drawn[name] = g.choose(CHOICES[name])
        elif attribute.type == defs.OpSchema.AttrType.FLOAT:
            drawn[name] = g.choose(FLOAT_CHOICES)
        elif attribute.required:
            raise RefusedError
    return drawn
