"""Element-wise operators whose attribute, or one of whose operands, is a constant at the end of what there is.

Decompositions look at such numbers: a power of a half is a root. From the schemas: every operator with one tensor
and numbers as attributes, each of which takes each of `NUMBERS`; every one with two tensors, either of which is
a constant. All of an operator are one model, which runs over numbers that are special themselves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.defs import OpSchema

from tests.fuzz.case import Case
from tests.fuzz.check import Finding, Skipped, check

INF, NAN = math.inf, math.nan
OPSETS = (13, 24)
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 1 / 3, 1e-30, 1e30, INF, -INF, NAN)
INTEGERS = (0, 1, 2, 3, 4, 7, 8, 16, 31, 32, -1, -2, -3, -8)
FLOATS = ("float16", "float32", "float64")
DTYPES = (*FLOATS, "int8", "uint8", "int32", "uint32", "int64", "uint64", "bool")
BINARY = (
    *("Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater"),
    *("GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu"),
    *("Pow", "Sub", "Sum", "Xor"),
)
WAYS: dict[str, tuple[dict[str, Any], ...]] = {
    "BitShift": ({"direction": "LEFT"}, {"direction": "RIGHT"}),
    "Mod": ({"fmod": 1}, {}),
}


def _with_numbers(opset: int) -> Iterator[tuple[str, list[str]]]:
    """Operators of one tensor that need no attribute, and those of their attributes that are numbers."""
    for name in sorted({schema.name for schema in onnx.defs.get_all_schemas()}):
        if not onnx.defs.has(name, opset, ""):
            continue
        schema = onnx.defs.get_schema(name, opset, "")
        single = [i for i in schema.inputs if i.option is OpSchema.FormalParameterOption.Single]
        numbers = [k for k, a in schema.attributes.items() if a.type is OpSchema.AttrType.FLOAT]
        free = not any(attribute.required for attribute in schema.attributes.values())
        drawn = "Random" in name or name in ("Bernoulli", "Multinomial")
        alone = name != "Resize"  # which needs sizes, though they may be left out
        if len(single) == 1 == schema.max_output and numbers and free and alone and not drawn:
            yield name, numbers


ATTRIBUTES = [(opset, *found) for opset in OPSETS for found in _with_numbers(opset)]


def _elements(dtype: str) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        sizes = (1e-45, 1e-38, 1e-20, 1 / 3, 0.5, 1, 1.5, 2, 3, 10, 100, 1e20, 3.4e38, INF)
        with np.errstate(over="ignore"):
            return np.array([0.0, -0.0, NAN, *sizes, *(-size for size in sizes)]).astype(kind)
    if kind.kind == "b":
        return np.array([False, True])
    info = np.iinfo(kind)
    ends = (info.min, info.min + 1, info.max, info.max - 1)
    found = dict.fromkeys((*INTEGERS, 5, 9, 15, 63, 100, -7, *ends))
    return np.array([n for n in found if info.min <= n <= info.max], kind)


def _constants(dtype: str) -> np.ndarray[Any, Any]:
    if np.dtype(dtype).kind != "f":
        return _elements(dtype)
    with np.errstate(over="ignore"):
        return np.array(NUMBERS).astype(dtype)


def _case(
    nodes: Sequence[onnx.NodeProto], x: np.ndarray[Any, Any], constants: dict[str, Any], opset: int
) -> Case:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes,
        "parameters",
        [helper.make_tensor_value_info("x", kind, ["n"])],
        [onnx.ValueInfoProto(name=node.output[0]) for node in nodes],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return Case(helper.make_model(graph, ir_version=8, opset_imports=opsets), ({"x": x},), True)


@pytest.mark.parametrize(("opset", "op", "names"), ATTRIBUTES)
def test_attributes(opset: int, op: str, names: list[str]) -> None:
    ran = 0
    for dtype in FLOATS:
        nodes = []
        for name, number in itertools.product(names, NUMBERS):
            for other in ({}, *({o: n} for o in names if o != name for n in (0.0, 2.0, -1.0))):
                attributes = {name: number, **other}
                nodes.append(helper.make_node(op, ["x"], [f"y{len(nodes)}"], **attributes))
        found = check(_case(nodes, _elements(dtype), {}, opset))
        assert not isinstance(found, Finding), (dtype, found)
        ran += not isinstance(found, Skipped)
    assert ran


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("op", BINARY)
def test_constant_operands(op: str, side: int) -> None:
    ran = 0
    for dtype, opset, rank in itertools.product(DTYPES, OPSETS, (0, 1)):
        x, numbers = _elements(dtype), _constants(dtype)
        if (
            op in ("Div", "Mod") and x.dtype.kind in "iu"
        ):  # of which onnxruntime may end the process
            x, numbers = (
                array[(array != 0) & (array.astype(np.float64) != -1)] if by else array
                for array, by in ((x, side == 0), (numbers, side == 1))
            )
        constants = {f"c{at}": number.reshape((1,) * rank) for at, number in enumerate(numbers)}
        nodes = [
            helper.make_node(op, [name, "x"][:: -1 if side else 1], [f"{name}y{way}"], **attributes)
            for name in constants
            for way, attributes in enumerate(WAYS.get(op, ({},)))
        ]
        found = check(_case(nodes, x, constants, opset))
        assert not isinstance(found, Finding), (dtype, opset, rank, found)
        ran += not isinstance(found, Skipped)
    assert ran
