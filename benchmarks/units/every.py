"""Every ONNX operator that is compiled, alone, at three sizes and in the types that it is met with, against onnxruntime.

`python -m benchmarks.units.every [--only Gather] [--below 0.9] [--threads 2] [--rounds 20] [--again FILE] [--write FILE]`

All dims are dynamic, but for those that weights fix. Both engines take turns, in processes of their own, which are
stopped meanwhile. What is shown is onnxruntime's median time over ours, the lowest first. Operators of which
`benchmarks.units.alone` or `.recurrent` has more (GridSample, DFT, LSTM) are met once or not at all here.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np
from onnx import helper, numpy_helper

from benchmarks.units.cases import Array, Case, Comparison

_RANDOM = np.random.default_rng(3)
_TYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i8": np.int8,
    "u8": np.uint8,
    "bool": np.bool_,
}
SIZES = {"small": 1000, "middle": 100_000, "large": 10_000_000}


def _array(kind: str, *shape: int) -> Array:
    dtype = np.dtype(_TYPES[kind])
    if dtype.kind == "f":
        return _RANDOM.uniform(0.05, 0.95, shape).astype(dtype)
    if dtype.kind == "b":
        return _RANDOM.integers(0, 2, shape).astype(np.bool_)
    return _RANDOM.integers(1, 100, shape).astype(dtype)


def _scalar(kind: str, value: float) -> Array:
    return np.array(value).astype(_TYPES[kind])


def _matrix(count: int) -> tuple[int, int]:
    """About `count` elements in rows as transformers have them."""
    columns = {1000: 64, 100_000: 256}.get(count, 1024)
    return max(1, count // columns), columns


def _image(count: int, channels: int = 32) -> tuple[int, int, int, int]:
    if count < 10_000:
        channels = 4
    side = math.isqrt(max(1, count // channels))
    return (1, channels, min(side, 256), side * side // min(side, 256))


_Cases: TypeAlias = Iterator[Case]
_FAMILIES: list[Callable[[str, int], _Cases]] = []


def _family(function: Callable[[str, int], _Cases]) -> Callable[[str, int], _Cases]:
    _FAMILIES.append(function)
    return function


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


@_family
def unary(size: str, count: int) -> _Cases:
    for op in _UNARY:
        yield Case(op, f"f32 {size}", {"x": _array("f32", *_matrix(count)) + (op == "Acosh")})
    for op in _UNARY_16:
        yield Case(op, f"f16 {size}", {"x": _array("f16", *_matrix(count))})
    for op, kind in itertools.product(_UNARY_INTEGERS, ("i64", "i32", "i8")):
        if (op, kind) != ("Relu", "i64"):
            yield Case(op, f"{kind} {size}", {"x": _array(kind, *_matrix(count))})
    for kind in ("i64", "i32", "u8"):
        yield Case("BitwiseNot", f"{kind} {size}", {"x": _array(kind, *_matrix(count))})
    yield Case("Not", f"bool {size}", {"x": _array("bool", *_matrix(count))})
    for kind in ("f32", "f16", "i64", "i8"):
        limits = {"low": _scalar(kind, 0.3), "high": _scalar(kind, 20)}
        yield Case("Clip", f"{kind} {size}", {"x": _array(kind, *_matrix(count))}, limits)
    for before, after in itertools.permutations(_TYPES, 2):
        to = helper.np_dtype_to_tensor_dtype(np.dtype(_TYPES[after]))
        x = {"x": _array(before, *_matrix(count))}
        yield Case("Cast", f"{before} to {after} {size}", x, attributes={"to": to})


_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Min", "Max", "Pow", "Mod")
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


@_family
def binary(size: str, count: int) -> _Cases:
    rows, columns = _matrix(count)
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
                feeds = {"a": _array(kind, rows, columns), "b": _array(kind, *shape)}
                if op == "Pow" and kind != "f32":
                    feeds["b"] = np.asarray(feeds["b"] % 4 if kind[0] == "i" else feeds["b"])
                fmod = {"fmod": 1} if op == "Mod" and kind == "f32" else {}
                yield Case(op, f"{kind}{spread} {size}", feeds, attributes=fmod)
    for op in ("And", "Or", "Xor", "Equal"):
        for spread, shape in others.items():
            feeds = {"a": _array("bool", rows, columns), "b": _array("bool", *shape)}
            yield Case(op, f"bool{spread} {size}", feeds)
    for op, kind in itertools.product(
        ("BitwiseAnd", "BitwiseOr", "BitwiseXor"), ("i64", "i32", "u8")
    ):
        yield Case(op, f"{kind} {size}", {name: _array(kind, rows, columns) for name in "ab"})
    shifts = {"a": _array("u8", rows, columns), "b": _array("u8", rows, columns) % 8}
    yield Case("BitShift", f"u8 {size}", shifts, attributes={"direction": "LEFT"})
    for op in ("Sum", "Mean", "Max", "Min"):
        yield Case(
            op, f"three of f32 {size}", {name: _array("f32", rows, columns) for name in "abc"}
        )
    slopes = {"x": _array("f32", *_image(count)) - np.float32(0.5)}
    yield Case(
        "PRelu", f"f32 {size}", slopes, {"s": _array("f32", slopes["x"].shape[1], 1, 1)}, fixed=[1]
    )
    for kind in ("f32", "f16", "i64", "u8", "bool"):
        for spread, shape in others.items():
            feeds = {
                "c": _array("bool", rows, columns),
                "a": _array(kind, rows, columns),
                "b": _array(kind, *shape),
            }
            yield Case("Where", f"{kind}{spread} {size}", feeds)
        mask = {
            "c": _array("bool", 1, columns),
            "a": _array(kind, rows, columns),
            "b": _array(kind, 1, 1),
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


@_family
def reductions(size: str, count: int) -> _Cases:
    rows, columns = _matrix(count)
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
                ("image", _image(count), [2, 3]),
                ("outer two", middle, [0, 2]),
            ):
                x, constants = {"x": _array(kind, *shape)}, {"axes": np.array(axes)}
                yield Case(op, f"{kind} {label} {size}", x, constants, {"keepdims": 0})
    for op, kind in itertools.product(("ReduceMax", "ReduceMin"), ("i8", "u8")):
        yield Case(
            op, f"{kind} rows {size}", {"x": _array(kind, rows, columns)}, {"axes": np.array([1])}
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
                op, f"{kind} {label} {size}", {"x": _array(kind, *shape)}, attributes={"axis": axis}
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
                    {"x": _array(kind, *shape)},
                    attributes={"axis": axis},
                )
    for op, axis in itertools.product(("CumSum",), (0, 1)):
        for kind in ("f32", "i64"):
            yield Case(
                op,
                f"{kind} axis {axis} {size}",
                {"x": _array(kind, rows, columns)},
                {"axis": np.array(axis)},
            )


@_family
def norms(size: str, count: int) -> _Cases:
    rows, columns = _matrix(count)
    for kind in ("f32", "f16"):
        held = {"s": _array(kind, columns), "b": _array(kind, columns)}
        yield Case(
            "LayerNormalization",
            f"{kind} {size}",
            {"x": _array(kind, rows, columns)},
            held,
            fixed=[1],
        )
    scale = {"s": _array("f32", columns)}
    yield Case(
        "RMSNormalization",
        f"f32 {size}",
        {"x": _array("f32", rows, columns)},
        scale,
        fixed=[1],
        opset=23,
    )
    for axis, p in itertools.product((0, 1), (1, 2)):
        yield Case(
            "LpNormalization",
            f"p {p} axis {axis} {size}",
            {"x": _array("f32", rows, columns)},
            attributes={"axis": axis, "p": p},
        )
    shape = _image(count)
    channels = shape[1]
    x = {"x": _array("f32", *shape)}
    of_channels = {name: _array("f32", channels) for name in ("s", "b", "m", "v")}
    yield Case("BatchNormalization", f"f32 {size}", x, of_channels, fixed=[1])
    two = {name: of_channels[name] for name in ("s", "b")}
    yield Case("InstanceNormalization", f"f32 {size}", x, two, fixed=[1])
    yield Case(
        "GroupNormalization", f"f32 {size}", x, two, {"num_groups": channels // 2}, fixed=[1]
    )
    yield Case("MeanVarianceNormalization", f"f32 {size}", x, fixed=[1])
    yield Case("LRN", f"f32 {size}", x, attributes={"size": 3}, fixed=[1])
    held = {"s": np.float32(0.02).reshape(()), "z": np.array(120, np.uint8)}
    yield Case("QuantizeLinear", f"f32 {size}", {"x": _array("f32", rows, columns)}, held)
    yield Case("DequantizeLinear", f"u8 {size}", {"x": _array("u8", rows, columns)}, held)
    signed = {"s": held["s"], "z": np.array(3, np.int8)}
    yield Case("DequantizeLinear", f"i8 {size}", {"x": _array("i8", rows, columns)}, signed)
    yield Case(
        "DynamicQuantizeLinear", f"f32 {size}", {"x": _array("f32", rows, columns)}, outputs=3
    )


_MOVED = ("f32", "f16", "i64", "u8", "bool")


@_family
def moving(size: str, count: int) -> _Cases:
    rows, columns = _matrix(count)
    image = _image(count)
    heads = (1, max(1, rows // 4), 4, columns)
    for kind in _MOVED:
        for label, shape, perm in (
            ("matrix", (rows, columns), (1, 0)),
            ("heads", heads, (0, 2, 1, 3)),
            ("channels last", image, (0, 2, 3, 1)),
            ("channels first", (1, *image[2:], image[1]), (0, 3, 1, 2)),
            ("colours first", (1, max(1, rows // 3), columns, 3), (0, 3, 1, 2)),
            ("colours last", (1, 3, max(1, rows // 3), columns), (0, 2, 3, 1)),
            ("keys", heads, (0, 2, 3, 1)),
            ("outer", (4, max(1, rows // 4), columns), (1, 0, 2)),
        ):
            x = {"x": _array(kind, *shape)}
            yield Case("Transpose", f"{kind} {label} {size}", x, attributes={"perm": perm})
        matrix = _array(kind, rows, columns)
        for axis in (0, 1):
            feeds = dict.fromkeys("ab", matrix)
            yield Case("Concat", f"{kind} axis {axis} {size}", feeds, attributes={"axis": axis})
            yield Case(
                "Split",
                f"{kind} axis {axis} {size}",
                {"x": matrix},
                attributes={"axis": axis, "num_outputs": 2},
                outputs=2,
            )
            for label, bounds in (
                ("half", ((0,), (max(1, matrix.shape[axis] // 2),), (axis,), (1,))),
                ("but one", ((1,), (2**40,), (axis,), (1,))),
                ("every second", ((0,), (2**40,), (axis,), (2,))),
                ("reversed", ((-1,), (-(2**40),), (axis,), (-1,))),
            ):
                held = {
                    name: np.array(bound)
                    for name, bound in zip(("st", "en", "ax", "sp"), bounds, strict=True)
                }
                yield Case("Slice", f"{kind} {label} axis {axis} {size}", {"x": matrix}, held)
            extent = matrix.shape[axis]
            for label, number in (("half", max(1, extent // 2)), ("few", 7)):
                index = _RANDOM.integers(0, extent, number)
                feeds = {"x": matrix, "i": index}
                yield Case(
                    "Gather", f"{kind} {label} axis {axis} {size}", feeds, attributes={"axis": axis}
                )
            points = _RANDOM.integers(0, extent, matrix.shape)
            feeds = {"x": matrix, "i": points}
            yield Case(
                "GatherElements", f"{kind} axis {axis} {size}", feeds, attributes={"axis": axis}
            )
            few = _RANDOM.integers(0, extent, (max(1, rows // 4), max(1, columns // 4)))
            feeds = {"x": matrix, "i": few, "u": _array(kind, *few.shape)}
            yield Case(
                "ScatterElements", f"{kind} axis {axis} {size}", feeds, attributes={"axis": axis}
            )
        middle = _array(kind, max(1, rows // 16), 16, columns)
        index = _RANDOM.integers(0, 16, 8)
        yield Case(
            "Gather", f"{kind} middle {size}", {"x": middle, "i": index}, attributes={"axis": 1}
        )
        table = _array(kind, max(2, rows // 4), columns)
        tokens = _RANDOM.integers(0, len(table), (1, max(1, rows)))
        yield Case("Gather", f"{kind} embedding {size}", {"x": table, "i": tokens})
        pairs = np.stack(
            [_RANDOM.integers(0, rows, rows), _RANDOM.integers(0, columns, rows)], axis=1
        )
        yield Case("GatherND", f"{kind} points {size}", {"x": matrix, "i": pairs}, fixed=[("i", 1)])
        yield Case("GatherND", f"{kind} rows {size}", {"x": matrix, "i": pairs[:, :1]})
        scattered = _RANDOM.permutation(rows)[: max(1, rows // 4), None]
        updates = _array(kind, len(scattered), columns)
        yield Case("ScatterND", f"{kind} rows {size}", {"x": matrix, "i": scattered, "u": updates})
        for label, pads in (
            ("rows", (1, 0, 1, 0)),
            ("columns", (0, 1, 0, 1)),
            ("both", (2, 2, 2, 2)),
            ("cut", (-1, -1, -1, -1)),
        ):
            yield Case("Pad", f"{kind} {label} {size}", {"x": matrix}, {"p": np.array(pads)})
        for mode in ("constant", "edge", "reflect", "wrap"):
            if kind not in ("f32", "u8"):
                continue
            around = {"p": np.array((0, 0, 1, 1, 0, 0, 1, 1))}
            yield Case(
                "Pad",
                f"{kind} image {mode} {size}",
                {"x": _array(kind, *image)},
                around,
                {"mode": mode},
            )
        for label, shape, repeats in (
            ("rows", (max(1, rows // 4), columns), (4, 1)),
            ("columns", (rows, columns // 4), (1, 4)),
            ("both", (max(1, rows // 2), columns // 2), (2, 2)),
        ):
            yield Case(
                "Tile",
                f"{kind} {label} {size}",
                {"x": _array(kind, *shape)},
                {"r": np.array(repeats)},
            )
        for label, shape in (("row", (1, columns)), ("column", (rows, 1)), ("scalar", (1, 1))):
            feeds = {"x": _array(kind, *shape), "s": np.array((rows, columns))}
            yield Case("Expand", f"{kind} {label} {size}", feeds, fixed=[("s", 0)])
        square = math.isqrt(count)
        for upper in (0, 1):
            x = {"x": _array(kind, square, square)}
            yield Case("Trilu", f"{kind} upper {upper} {size}", x, attributes={"upper": upper})
        yield Case("EyeLike", f"{kind} {size}", {"x": _array(kind, square, square)})
        deep = (1, 4 * max(4, image[1] // 4), image[2] // 2, image[3] // 2)
        for mode in ("DCR", "CRD"):
            attributes = {"blocksize": 2, "mode": mode}
            if kind in ("f32", "u8"):
                yield Case(
                    "DepthToSpace",
                    f"{kind} {mode} {size}",
                    {"x": _array(kind, *deep)},
                    attributes=attributes,
                    fixed=[1],
                )
        even = (1, 4, image[2] // 2 * 2, image[3] // 2 * 2)
        if kind == "f32":
            yield Case(
                "SpaceToDepth",
                f"{kind} {size}",
                {"x": _array(kind, *even)},
                attributes={"blocksize": 2},
            )
        yield Case("Reshape", f"{kind} {size}", {"x": matrix}, {"s": np.array((-1,))})
        if kind in ("f32", "i64", "u8"):
            where = _array("bool", rows)
            yield Case(
                "Compress", f"{kind} rows {size}", {"x": matrix, "c": where}, attributes={"axis": 0}
            )
            yield Case("NonZero", f"{kind} {size}", {"x": matrix * (_array("bool", rows, columns))})
        if kind in ("f32", "i64", "bool", "u8"):
            value = {"value": numpy_helper.from_array(np.ones(1, _TYPES[kind]))}
            yield Case(
                "ConstantOfShape",
                f"{kind} {size}",
                {"s": np.array((rows, columns))},
                attributes=value,
                fixed=[0],
            )
    yield Case(
        "ReverseSequence",
        f"f32 {size}",
        {"x": _array("f32", *heads[1:]), "l": np.full(4, max(1, rows // 8))},
    )
    for kind in ("f32", "i64"):
        depth, values = np.array(columns), _array(kind, 2)
        feeds = {"i": _RANDOM.integers(0, columns, rows)}
        yield Case("OneHot", f"{kind} {size}", feeds, {"d": depth, "v": values})
        limits = {"a": _scalar(kind, 0), "b": _scalar(kind, count), "c": _scalar(kind, 1)}
        yield Case("Range", f"{kind} {size}", limits)
    for kind in ("f32", "i64"):
        for k in (1, 10):
            yield Case(
                "TopK",
                f"{kind} {k} of rows {size}",
                {"x": _array(kind, rows, columns)},
                {"k": np.array([k])},
                outputs=2,
            )
    yield Case("Unique", f"i64 {size}", {"x": _array("i64", min(count, 100_000))}, outputs=4)


@_family
def images(size: str, count: int) -> _Cases:
    for channels in (1, 3, 8, 16, 64, 256):
        shape = _image(count, channels)
        if size == "small" and channels > 8:
            continue
        x = {"x": _array("f32", 1, channels, *shape[2:])}
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
            weight = {"w": _array("f32", channels, 1, 3, 3)}
            attributes = {"group": channels, "pads": [1] * 4}
            yield Case("Conv", f"depth-wise {label}", x, weight, attributes, fixed=[1])
            weight = {"w": _array("f32", channels, channels, 1, 1)}
            yield Case("Conv", f"1 x 1 {label}", x, weight, fixed=[1])
            weight = {"w": _array("f32", channels, channels, 3, 3)}
            yield Case("Conv", f"3 x 3 {label}", x, weight, {"pads": [1] * 4}, fixed=[1])
            weight = {"w": _array("f32", channels, channels, 2, 2)}
            yield Case(
                "ConvTranspose", f"2 by 2 {label}", x, weight, {"strides": [2, 2]}, fixed=[1]
            )
        if channels in (3, 16):
            bytes_ = {"x": _array("u8", 1, channels, *shape[2:])}
            attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
            yield Case("MaxPool", f"u8 3 by 2 {label}", bytes_, attributes=attributes, fixed=[1])
            attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
            yield Case("LpPool", f"2 by 2 {label}", x, attributes=attributes, fixed=[1])
            yield Case(
                "MaxPool", f"with indices {label}", x, attributes=attributes, fixed=[1], outputs=2
            )


@_family
def products(size: str, count: int) -> _Cases:
    m, n, k = {"small": (8, 64, 64), "middle": (64, 256, 256)}.get(size, (512, 1024, 1024))
    a, b = _array("f32", m, k), _array("f32", k, n)
    yield Case("MatMul", f"f32 {size}", {"a": a, "b": b})
    yield Case("MatMul", f"f32 constant {size}", {"a": a}, {"b": b}, fixed=[1])
    yield Case(
        "MatMul",
        f"f32 batches {size}",
        {"a": _array("f32", 12, m, 64), "b": _array("f32", 12, 64, m)},
    )
    yield Case(
        "Gemm",
        f"f32 {size}",
        {"a": a},
        {"b": b.T.copy(), "c": _array("f32", n)},
        {"transB": 1},
        fixed=[1],
    )
    yield Case("MatMul", f"f32 vector {size}", {"a": a, "b": _array("f32", k)})
    yield Case(
        "Einsum",
        f"f32 outer {size}",
        {"a": _array("f32", m), "b": _array("f32", n)},
        attributes={"equation": "i,j->ij"},
    )
    yield Case(
        "Einsum",
        f"f32 heads {size}",
        {name: _array("f32", 1, m, 12, 64) for name in "ab"},
        attributes={"equation": "bqhd,bkhd->bhqk"},
    )
    heads = {name: _array("f32", 1, 4, m, 64) for name in ("q", "k", "v")}
    yield Case("Attention", f"f32 {size}", heads, opset=23)


def cases(only: str, sizes: Sequence[str]) -> Iterator[Case]:
    wanted = only.lower().split(",")
    for family, size in itertools.product(_FAMILIES, sizes):
        for case in family(size, SIZES[size]):
            if any(part in f"{case.op} {case.name}".lower() for part in wanted):
                yield case


@click.command()
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=20, show_default=True)
@click.option("--only", default="", help="cases whose names have one of these, with commas between")
@click.option("--size", "sizes", multiple=True, default=tuple(SIZES))
@click.option("--below", default=1e9, help="lists those under this ratio")
@click.option("--again", type=Path, help="only those that were under `--below` in this file")
@click.option("--write", type=Path, help="JSON: ratio and seconds of each")
def main(
    threads: int,
    rounds: int,
    only: str,
    sizes: tuple[str, ...],
    below: float,
    again: Path | None,
    write: Path | None,
) -> None:
    """Onnxruntime's time over ours."""
    chosen = None
    if again is not None:
        chosen = {name for ratio, name, _ in json.loads(again.read_text()) if ratio < below}
    named = ((f"{case.op} {case.name}", case) for case in cases(only, sizes))
    comparison = Comparison(threads, rounds)
    comparison.take((one for one in named if chosen is None or one[0] in chosen), write)
    comparison.show(below)


if __name__ == "__main__":
    main()
