"""Models that compute the same but for roundings: what a result moves by is what it hangs on.

In: a model and a seed. Out: the model with every floating-point operand multiplied by about one, or products that add
up backwards.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.growth import FLOATS
from tests.fuzz.stepwise import inferred

ULPS = (-4, -2, -1, 1, 2, 4)
"""By how many units in its last place an operand moves: the instructions of functions may be off by 4."""


def eps(kind: Any) -> float:
    """The step between one and the next number of a type."""
    return float(ml_dtypes.finfo(kind).eps)


def disturbed(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The model with every floating-point operand multiplied by about one, each reader's by its own.

    Of odd seeds, by a number that hangs on the element's value, or on that which a function made it of: what
    is equal stays so, and neighbours of a value, or of a function's limit, may change their order. Of every
    second even one, each element of what was computed of several numbers by its own: no two have to be
    rounded alike. So does each element that a mean is taken of, which is rounded, and then taken from.
    Of every third seed, products add up backwards instead: terms that cancel exactly go on doing so.
    """
    typed = inferred(model)
    values = (*typed.graph.input, *typed.graph.value_info, *typed.graph.output)
    types = {v.name: v.type.tensor_type.elem_type for v in values}
    types |= {t.name: t.data_type for t in model.graph.initializer}
    constants = {t.name: t for t in model.graph.initializer}
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in values}
    ranks |= {t.name: len(t.dims) for t in model.graph.initializer}
    version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    rng = random.Random(seed)
    sums = {name for n in model.graph.node if n.op_type not in _OF_ONE_NUMBER for name in n.output}
    functions = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type in _FUNCTIONS}
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    del graph.node[:]
    for node in model.graph.node:
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        if seed % 3 == 1 and node.op_type in ("MatMul", "Gemm") and version >= 10:
            _turn(graph, copy, [ranks.get(name, 0) for name in node.input[:2]])
            graph.node.append(copy)
            continue
        for place, name in enumerate(node.input):
            dtype = types.get(name, 0)
            if dtype not in FLOATS or dtype == TensorProto.BFLOAT16:
                continue
            if place and (
                node.op_type in _EXACT
                or (node.op_type in _CONSTANT_OPERANDS and name not in constants)
            ):
                continue
            kind = helper.tensor_dtype_to_np_dtype(dtype)
            near = copy.input[place] = f"{node.output[0]}_{place}_near"
            ulps = rng.choice(ULPS) * eps(kind)
            alike = seed % 4 != 2 or not (name in sums or (not place and node.op_type in _CENTRED))
            if name in constants and alike:  # stays one
                array = np.asarray(numpy_helper.to_array(constants[name]) * (1 + ulps), kind)
                graph.initializer.append(numpy_helper.from_array(array, near))
            elif not alike:
                _scatter(graph, name, near, kind, abs(ulps), rng.randrange(_PRIME // 2), version)
            elif seed % 2:
                frequency = rng.uniform(0.1, 1) / eps(kind)
                _vary(graph, name, near, dtype, frequency, ulps, by=functions.get(name, name))
            else:
                graph.initializer.append(
                    numpy_helper.from_array(np.array(1 + ulps, kind), f"{near}.factor")
                )
                graph.node.append(helper.make_node("Mul", [name, f"{near}.factor"], [near]))
        graph.node.append(copy)
    return result


def _turn(graph: onnx.GraphProto, product: onnx.NodeProto, ranks: Sequence[int]) -> None:
    """Appends slices that turn the axes along which the product adds up, where they are known."""
    given = {a.name: a.i for a in product.attribute}
    turned = [bool(given.get(name)) for name in ("transA", "transB")]
    if not all(ranks):
        return
    for place, rank in enumerate(ranks):
        axis = rank - 1 if rank == 1 or turned[place] != (place == 0) else rank - 2
        name, result = product.input[place], f"{product.output[0]}_{place}_turned"
        parts = {"starts": -1, "ends": -(2**63), "axes": axis, "steps": -1}
        for part, number in parts.items():
            tensor = numpy_helper.from_array(np.array([number], np.int64), f"{result}.{part}")
            graph.initializer.append(tensor)
        graph.node.append(
            helper.make_node("Slice", [name, *(f"{result}.{part}" for part in parts)], [result])
        )
        product.input[place] = result


def _vary(
    graph: onnx.GraphProto,
    name: str,
    near: str,
    dtype: int,
    frequency: float,
    ulps: float,
    by: str,
) -> None:
    """Appends `near = name * (1 + ulps * sin(frequency * by)) + sign(name) * least`, of finite sines.

    `least` is a step of numbers too small to move by the factor; 0 stays 0.
    """
    wide = TensorProto.DOUBLE if dtype == TensorProto.DOUBLE else TensorProto.FLOAT
    kind = helper.tensor_dtype_to_np_dtype(wide)
    least = float(ml_dtypes.finfo(helper.tensor_dtype_to_np_dtype(dtype)).smallest_subnormal)

    def number(value: float) -> str:
        constant = f"{near}.{len(graph.initializer)}"
        graph.initializer.append(numpy_helper.from_array(np.array(value, kind), constant))
        return constant

    def node(op: str, *operands: str, **attributes: Any) -> str:
        result = f"{near}.{op}.{len(graph.node)}"
        graph.node.append(helper.make_node(op, operands, [result], **attributes))
        return result

    x = node("Cast", name, to=wide)
    large = node("Mul", node("Cast", by, to=wide), number(frequency))
    sine = node("Sin", node("Max", node("Min", large, number(1e30)), number(-1e30)))
    factor = node("Add", node("Mul", sine, number(ulps)), number(1.0))
    sign = node("Max", node("Min", node("Mul", x, number(1e37)), number(1e-8)), number(-1e-8))
    step = node("Mul", sign, number(math.copysign(least * 1e8, ulps)))
    varied = node("Add", node("Mul", x, factor), step)
    graph.node.append(helper.make_node("Cast", [varied], [near], to=dtype))


def _scatter(
    graph: onnx.GraphProto,
    name: str,
    near: str,
    kind: np.dtype[Any],
    ulps: float,
    seed: int,
    version: int,
) -> None:
    """Appends `near = name * factors`, each of which is of its own and off 1 by at most `ulps`.

    onnxruntime draws uniform numbers for operator sets before 22; those behind them scatter by position.
    """
    factors = f"{near}.factors"
    if version < 22:
        limits = {"low": 1 - ulps, "high": 1 + ulps, "seed": float(seed)}
        graph.node.append(helper.make_node("RandomUniformLike", [name], [factors], **limits))
    else:
        wide = ("first", 0), ("one", 1), ("by", 2 * seed + 1), ("prime", _PRIME)
        narrow = ("step", 2 * ulps / _PRIME), ("least", 1 - ulps)
        for numbers, dtype in ((wide, np.dtype(np.int64)), (narrow, kind)):
            for part, value in numbers:
                array = np.array(value, dtype)
                graph.initializer.append(numpy_helper.from_array(array, f"{near}.{part}"))
        for op, operands, result, attributes in (
            ("Size", "", "size", {}),
            ("Shape", "", "shape", {}),
            ("Range", "first size one", "positions", {}),
            ("Mul", "positions by", "spread", {}),
            ("Mod", "spread prime", "drawn", {}),
            ("Cast", "drawn", "number", {"to": helper.np_dtype_to_tensor_dtype(kind)}),
            ("Mul", "number step", "off", {}),
            ("Add", "off least", "row", {}),
            ("Reshape", "row shape", "factors", {"allowzero": 1}),
        ):
            read = [f"{near}.{part}" for part in operands.split()] or [name]
            graph.node.append(helper.make_node(op, read, [f"{near}.{result}"], **attributes))
    graph.node.append(helper.make_node("Mul", [name, factors], [near]))


_PRIME = 9973
"""How many numbers positions are scattered over."""
_EXACT = frozenset(("Pow", "Resize", "Upsample"))
"""Operators whose further operands say how large results are, or are whole for the sake of negative bases."""
_FUNCTIONS = frozenset(
    (
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf"),
        *("Exp", "Gelu", "HardSwish", "Log", "Mish", "Reciprocal", "Selu", "Sigmoid", "Sin"),
        *("Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
    )
)
"""Operators that round a function of each element. Near their limits, unlike numbers may give equal ones."""
_CENTRED = frozenset(
    (
        *("BatchNormalization", "GroupNormalization", "InstanceNormalization"),
        *("LayerNormalization", "MeanVarianceNormalization", "SkipLayerNormalization"),
    )
)
"""Operators that take a mean from numbers: of equal ones, rounding is left."""
_OF_ONE_NUMBER = _FUNCTIONS | frozenset(
    (
        *("Abs", "Cast", "Ceil", "Clip", "Compress", "Concat", "ConstantOfShape", "DepthToSpace"),
        *(
            "Dropout",
            "Expand",
            "EyeLike",
            "Flatten",
            "Floor",
            "Gather",
            "GatherElements",
            "GatherND",
        ),
        *("HardSigmoid", "Hardmax", "Identity", "If", "LeakyRelu", "Loop", "Max", "MaxPool", "Min"),
        *("Neg", "OneHot", "Pad", "Range", "ReduceMax", "ReduceMin", "Relu", "Reshape"),
        *(
            "ReverseSequence",
            "Round",
            "Scan",
            "ScatterElements",
            "ScatterND",
            "SequenceAt",
            "Shrink",
        ),
        *("Sign", "Slice", "SpaceToDepth", "Split", "Squeeze", "ThresholdedRelu", "Tile", "TopK"),
        *("Transpose", "Trilu", "Unsqueeze", "Where"),
    )
)
"""Operators each of whose elements is an operand's, or a function of one. What others give out of unlike
numbers may be equal but for roundings.
"""
_CONSTANT_OPERANDS = frozenset(
    ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearConcat")
)
