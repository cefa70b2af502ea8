"""Operators alone that compute, for `benchmarks.units.every`: element by element, reductions, norms, windows, products."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from onnx import helper

from benchmarks.units.cases import Case
from benchmarks.units.operands import TYPES, Cases, array, image_of, matrix_of, scalar

_UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Celu",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
]
_UNARY_16 = ("Abs", "Exp", "Relu", "Sigmoid", "Sqrt", "Tanh", "Neg", "Gelu", "Identity")
_UNARY_INTEGERS = ("Abs", "Neg", "Sign", "Relu")


def unary(size: str, count: int) -> Cases:
    for op in _UNARY:
        yield Case(op, f"f32 {size}", {"x": array("f32", *matrix_of(count)) + (op == "Acosh")})
    for op in _UNARY_16:
        yield Case(op, f"f16 {size}", {"x": array("f16", *matrix_of(count))})
    for op, kind in itertools.product(_UNARY_INTEGERS, ("i64", "i32", "i8")):
        if (op, kind) != ("Relu", "i64"):
            yield Case(op, f"{kind} {size}", {"x": array(kind, *matrix_of(count))})
    for kind in ("i64", "i32", "u8"):
        yield Case("BitwiseNot", f"{kind} {size}", {"x": array(kind, *matrix_of(count))})
    yield Case("Not", f"bool {size}", {"x": array("bool", *matrix_of(count))})
    for kind in ("f32", "f16", "i64", "i8"):
        limits = {"low": scalar(kind, 0.3), "high": scalar(kind, 20)}
        yield Case("Clip", f"{kind} {size}", {"x": array(kind, *matrix_of(count))}, limits)
    for before, after in itertools.permutations(TYPES, 2):
        to = helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[after]))
        x = {"x": array(before, *matrix_of(count))}
        yield Case("Cast", f"{before} to {after} {size}", x, attributes={"to": to})


_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Min", "Max", "Pow", "Mod")
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


def binary(size: str, count: int) -> Cases:
    rows, columns = matrix_of(count)
    others = {
        "": (rows, columns),
        " row": (columns,),
        " column": (rows, 1),
        " scalar": (),
    }
    for op in (*_ARITHMETIC, *_COMPARISONS):
        for kind in ("f32", "f16", "i64", "i32", "i8", "u8"):
            if kind in ("i8", "u8") and op in _ARITHMETIC and op not in ("Min", "Max"):
                continue
            if kind == "f16" and op in ("Mod", *_COMPARISONS[1:]):
                continue
            for spread, shape in others.items():
                if spread and kind not in ("f32", "i64"):
                    continue
                feeds = {"a": array(kind, rows, columns), "b": array(kind, *shape)}
                if op == "Pow" and kind != "f32":
                    feeds["b"] = np.asarray(feeds["b"] % 4 if kind[0] == "i" else feeds["b"])
                fmod = {"fmod": 1} if op == "Mod" and kind == "f32" else {}
                yield Case(op, f"{kind}{spread} {size}", feeds, attributes=fmod)
    for op in ("And", "Or", "Xor", "Equal"):
        for spread, shape in others.items():
            feeds = {"a": array("bool", rows, columns), "b": array("bool", *shape)}
            yield Case(op, f"bool{spread} {size}", feeds)
    for op, kind in itertools.product(
        ("BitwiseAnd", "BitwiseOr", "BitwiseXor"), ("i64", "i32", "u8")
    ):
        yield Case(op, f"{kind} {size}", {name: array(kind, rows, columns) for name in "ab"})
    shifts = {"a": array("u8", rows, columns), "b": array("u8", rows, columns) % 8}
    yield Case("BitShift", f"u8 {size}", shifts, attributes={"direction": "LEFT"})
    for op in ("Sum", "Mean", "Max", "Min"):
        yield Case(
            op, f"three of f32 {size}", {name: array("f32", rows, columns) for name in "abc"}
        )
    slopes = {"x": array("f32", *image_of(count)) - np.float32(0.5)}
    yield Case(
        "PRelu", f"f32 {size}", slopes, {"s": array("f32", slopes["x"].shape[1], 1, 1)}, fixed=[1]
    )
    for kind in ("f32", "f16", "i64", "u8", "bool"):
        for spread, shape in others.items():
            feeds = {
                "c": array("bool", rows, columns),
                "a": array(kind, rows, columns),
                "b": array(kind, *shape),
            }
            yield Case("Where", f"{kind}{spread} {size}", feeds)
        mask = {
            "c": array("bool", 1, columns),
            "a": array(kind, rows, columns),
            "b": array(kind, 1, 1),
        }
        yield Case("Where", f"{kind} a mask of columns {size}", mask)


_REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
]


def reductions(size: str, count: int) -> Cases:
    rows, columns = matrix_of(count)
    middle = (max(1, rows // 16), 16, columns)
    for op in _REDUCTIONS:
        for kind in ("f32", "f16", "i64", "i32"):
            if op not in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin") and kind != "f32":
                continue
            for label, shape, axes in (
                ("rows", (rows, columns), [1]),
                ("columns", (rows, columns), [0]),
                ("all", (rows, columns), [0, 1]),
                ("middle", middle, [1]),
                ("image", image_of(count), [2, 3]),
                ("outer two", middle, [0, 2]),
            ):
                x, constants = {"x": array(kind, *shape)}, {"axes": np.array(axes)}
                yield Case(op, f"{kind} {label} {size}", x, constants, {"keepdims": 0})
    for op, kind in itertools.product(("ReduceMax", "ReduceMin"), ("i8", "u8")):
        yield Case(
            op, f"{kind} rows {size}", {"x": array(kind, rows, columns)}, {"axes": np.array([1])}
        )
    for op, kind in itertools.product(("ArgMax", "ArgMin"), ("f32", "f16", "i32", "i8")):
        if kind == "f16":
            continue
        for label, shape, axis in (
            ("rows", (rows, columns), 1),
            ("columns", (rows, columns), 0),
            ("middle", middle, 1),
        ):
            yield Case(
                op, f"{kind} {label} {size}", {"x": array(kind, *shape)}, attributes={"axis": axis}
            )
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for kind in ("f32", "f16"):
            for label, shape, axis in (
                ("rows", (rows, columns), 1),
                ("columns", (rows, columns), 0),
                ("middle", middle, 1),
            ):
                if (op, kind) == ("Hardmax", "f16"):
                    continue
                yield Case(
                    op,
                    f"{kind} {label} {size}",
                    {"x": array(kind, *shape)},
                    attributes={"axis": axis},
                )
    for op, axis in itertools.product(("CumSum",), (0, 1)):
        for kind in ("f32", "i64"):
            yield Case(
                op,
                f"{kind} axis {axis} {size}",
                {"x": array(kind, rows, columns)},
                {"axis": np.array(axis)},
            )


def norms(size: str, count: int) -> Cases:
    rows, columns = matrix_of(count)
    for kind in ("f32", "f16"):
        held = {"s": array(kind, columns), "b": array(kind, columns)}
        yield Case(
            "LayerNormalization",
            f"{kind} {size}",
            {"x": array(kind, rows, columns)},
            held,
            fixed=[1],
        )
    scale = {"s": array("f32", columns)}
    yield Case(
        "RMSNormalization",
        f"f32 {size}",
        {"x": array("f32", rows, columns)},
        scale,
        fixed=[1],
        opset=23,
    )
    for axis, p in itertools.product((0, 1), (1, 2)):
        yield Case(
            "LpNormalization",
            f"p {p} axis {axis} {size}",
            {"x": array("f32", rows, columns)},
            attributes={"axis": axis, "p": p},
        )
    shape = image_of(count)
    channels = shape[1]
    x = {"x": array("f32", *shape)}
    of_channels = {name: array("f32", channels) for name in ("s", "b", "m", "v")}
    yield Case("BatchNormalization", f"f32 {size}", x, of_channels, fixed=[1])
    two = {name: of_channels[name] for name in ("s", "b")}
    yield Case("InstanceNormalization", f"f32 {size}", x, two, fixed=[1])
    yield Case(
        "GroupNormalization", f"f32 {size}", x, two, {"num_groups": channels // 2}, fixed=[1]
    )
    yield Case("MeanVarianceNormalization", f"f32 {size}", x, fixed=[1])
    yield Case("LRN", f"f32 {size}", x, attributes={"size": 3}, fixed=[1])
    held = {"s": np.float32(0.02).reshape(()), "z": np.array(120, np.uint8)}
    yield Case("QuantizeLinear", f"f32 {size}", {"x": array("f32", rows, columns)}, held)
    yield Case("DequantizeLinear", f"u8 {size}", {"x": array("u8", rows, columns)}, held)
    signed = {"s": held["s"], "z": np.array(3, np.int8)}
    yield Case("DequantizeLinear", f"i8 {size}", {"x": array("i8", rows, columns)}, signed)
    yield Case(
        "DynamicQuantizeLinear", f"f32 {size}", {"x": array("f32", rows, columns)}, outputs=3
    )


def images(size: str, count: int) -> Cases:
    for channels in (1, 3, 8, 16, 64, 256):
        shape = image_of(count, channels)
        if size == "small" and channels > 8:
            continue
        x = {"x": array("f32", 1, channels, *shape[2:])}
        label = f"{channels} channels {size}"
        for op in ("MaxPool", "AveragePool"):
            for kernel, stride, pad in ((2, 2, 0), (3, 2, 1), (3, 1, 1)):
                attributes: dict[str, Any] = {
                    "kernel_shape": [kernel] * 2,
                    "strides": [stride] * 2,
                    "pads": [pad] * 4,
                }
                yield Case(op, f"{kernel} by {stride} {label}", x, attributes=attributes, fixed=[1])
        for op in ("GlobalAveragePool", "GlobalMaxPool"):
            yield Case(op, label, x, fixed=[1])
        for mode, scale in itertools.product(("nearest", "linear"), (0.5, 0.75, 1.5, 2.0)):
            scales = {"s": np.array((1, 1, scale, scale), np.float32)}
            for transform in ("half_pixel", "asymmetric"):
                if transform == "asymmetric" and mode == "linear":
                    continue
                attributes = {"mode": mode, "coordinate_transformation_mode": transform}
                if mode == "nearest":
                    attributes["nearest_mode"] = "floor"
                name = f"{mode} {scale} {transform} {label}"
                yield Case(
                    "Resize", name, x, scales, attributes, fixed=[1], operands=["x", "", "s"]
                )
        if channels in (8, 64):
            weight = {"w": array("f32", channels, 1, 3, 3)}
            attributes = {"group": channels, "pads": [1] * 4}
            yield Case("Conv", f"depth-wise {label}", x, weight, attributes, fixed=[1])
            weight = {"w": array("f32", channels, channels, 1, 1)}
            yield Case("Conv", f"1 x 1 {label}", x, weight, fixed=[1])
            weight = {"w": array("f32", channels, channels, 3, 3)}
            yield Case("Conv", f"3 x 3 {label}", x, weight, {"pads": [1] * 4}, fixed=[1])
            weight = {"w": array("f32", channels, channels, 2, 2)}
            yield Case(
                "ConvTranspose", f"2 by 2 {label}", x, weight, {"strides": [2, 2]}, fixed=[1]
            )
        if channels in (3, 16):
            bytes_ = {"x": array("u8", 1, channels, *shape[2:])}
            attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
            yield Case("MaxPool", f"u8 3 by 2 {label}", bytes_, attributes=attributes, fixed=[1])
            attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
            yield Case("LpPool", f"2 by 2 {label}", x, attributes=attributes, fixed=[1])
            yield Case(
                "MaxPool", f"with indices {label}", x, attributes=attributes, fixed=[1], outputs=2
            )


def products(size: str, count: int) -> Cases:
    m, n, k = {"small": (8, 64, 64), "middle": (64, 256, 256)}.get(size, (512, 1024, 1024))
    a, b = array("f32", m, k), array("f32", k, n)
    yield Case("MatMul", f"f32 {size}", {"a": a, "b": b})
    yield Case("MatMul", f"f32 constant {size}", {"a": a}, {"b": b}, fixed=[1])
    yield Case(
        "MatMul",
        f"f32 batches {size}",
        {"a": array("f32", 12, m, 64), "b": array("f32", 12, 64, m)},
    )
    yield Case(
        "Gemm",
        f"f32 {size}",
        {"a": a},
        {"b": b.T.copy(), "c": array("f32", n)},
        {"transB": 1},
        fixed=[1],
    )
    yield Case("MatMul", f"f32 vector {size}", {"a": a, "b": array("f32", k)})
    yield Case(
        "Einsum",
        f"f32 outer {size}",
        {"a": array("f32", m), "b": array("f32", n)},
        attributes={"equation": "i,j->ij"},
    )
    yield Case(
        "Einsum",
        f"f32 heads {size}",
        {name: array("f32", 1, m, 12, 64) for name in "ab"},
        attributes={"equation": "bqhd,bkhd->bhqk"},
    )
    heads = {name: array("f32", 1, 4, m, 64) for name in ("q", "k", "v")}
    yield Case("Attention", f"f32 {size}", heads, opset=23)
