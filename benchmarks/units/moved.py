"""Operators alone that move elements, or make them of few, for `benchmarks.units.every`."""

from __future__ import annotations

import math

import numpy as np
from onnx import numpy_helper

from benchmarks.units.cases import Case
from benchmarks.units.operands import RANDOM, TYPES, Cases, array, image_of, matrix_of, scalar

_MOVED = ("f32", "f16", "i64", "u8", "bool")


def moving(size: str, count: int) -> Cases:
    rows, columns = matrix_of(count)
    image = image_of(count)
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
            x = {"x": array(kind, *shape)}
            yield Case("Transpose", f"{kind} {label} {size}", x, attributes={"perm": perm})
        matrix = array(kind, rows, columns)
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
                index = RANDOM.integers(0, extent, number)
                feeds = {"x": matrix, "i": index}
                yield Case(
                    "Gather", f"{kind} {label} axis {axis} {size}", feeds, attributes={"axis": axis}
                )
            points = RANDOM.integers(0, extent, matrix.shape)
            feeds = {"x": matrix, "i": points}
            yield Case(
                "GatherElements", f"{kind} axis {axis} {size}", feeds, attributes={"axis": axis}
            )
            few = RANDOM.integers(0, extent, (max(1, rows // 4), max(1, columns // 4)))
            feeds = {"x": matrix, "i": few, "u": array(kind, *few.shape)}
            yield Case(
                "ScatterElements", f"{kind} axis {axis} {size}", feeds, attributes={"axis": axis}
            )
        middle = array(kind, max(1, rows // 16), 16, columns)
        index = RANDOM.integers(0, 16, 8)
        yield Case(
            "Gather", f"{kind} middle {size}", {"x": middle, "i": index}, attributes={"axis": 1}
        )
        table = array(kind, max(2, rows // 4), columns)
        tokens = RANDOM.integers(0, len(table), (1, max(1, rows)))
        yield Case("Gather", f"{kind} embedding {size}", {"x": table, "i": tokens})
        pairs = np.stack(
            [RANDOM.integers(0, rows, rows), RANDOM.integers(0, columns, rows)], axis=1
        )
        yield Case("GatherND", f"{kind} points {size}", {"x": matrix, "i": pairs}, fixed=[("i", 1)])
        yield Case("GatherND", f"{kind} rows {size}", {"x": matrix, "i": pairs[:, :1]})
        scattered = RANDOM.permutation(rows)[: max(1, rows // 4), None]
        updates = array(kind, len(scattered), columns)
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
                {"x": array(kind, *image)},
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
                {"x": array(kind, *shape)},
                {"r": np.array(repeats)},
            )
        for label, shape in (("row", (1, columns)), ("column", (rows, 1)), ("scalar", (1, 1))):
            feeds = {"x": array(kind, *shape), "s": np.array((rows, columns))}
            yield Case("Expand", f"{kind} {label} {size}", feeds, fixed=[("s", 0)])
        square = math.isqrt(count)
        for upper in (0, 1):
            x = {"x": array(kind, square, square)}
            yield Case("Trilu", f"{kind} upper {upper} {size}", x, attributes={"upper": upper})
        yield Case("EyeLike", f"{kind} {size}", {"x": array(kind, square, square)})
        deep = (1, 4 * max(4, image[1] // 4), image[2] // 2, image[3] // 2)
        for mode in ("DCR", "CRD"):
            attributes = {"blocksize": 2, "mode": mode}
            if kind in ("f32", "u8"):
                yield Case(
                    "DepthToSpace",
                    f"{kind} {mode} {size}",
                    {"x": array(kind, *deep)},
                    attributes=attributes,
                    fixed=[1],
                )
        even = (1, 4, image[2] // 2 * 2, image[3] // 2 * 2)
        if kind == "f32":
            yield Case(
                "SpaceToDepth",
                f"{kind} {size}",
                {"x": array(kind, *even)},
                attributes={"blocksize": 2},
            )
        yield Case("Reshape", f"{kind} {size}", {"x": matrix}, {"s": np.array((-1,))})
        if kind in ("f32", "i64", "u8"):
            where = array("bool", rows)
            yield Case(
                "Compress", f"{kind} rows {size}", {"x": matrix, "c": where}, attributes={"axis": 0}
            )
            yield Case("NonZero", f"{kind} {size}", {"x": matrix * (array("bool", rows, columns))})
        if kind in ("f32", "i64", "bool", "u8"):
            value = {"value": numpy_helper.from_array(np.ones(1, TYPES[kind]))}
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
        {"x": array("f32", *heads[1:]), "l": np.full(4, max(1, rows // 8))},
    )
    for kind in ("f32", "i64"):
        depth, values = np.array(columns), array(kind, 2)
        feeds = {"i": RANDOM.integers(0, columns, rows)}
        yield Case("OneHot", f"{kind} {size}", feeds, {"d": depth, "v": values})
        limits = {"a": scalar(kind, 0), "b": scalar(kind, count), "c": scalar(kind, 1)}
        yield Case("Range", f"{kind} {size}", limits)
    for kind in ("f32", "i64"):
        for k in (1, 10):
            yield Case(
                "TopK",
                f"{kind} {k} of rows {size}",
                {"x": array(kind, rows, columns)},
                {"k": np.array([k])},
                outputs=2,
            )
    yield Case("Unique", f"i64 {size}", {"x": array("i64", min(count, 100_000))}, outputs=4)
