"""Ways to damage a model, options and feeds, each a pure function of a `random.Random`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import onnx
from onnx import helper

import dvm_graph
from dvm_graph._core import simd_levels
from dvm_graph.options import FALLBACKS, PRECISIONS
from dvm_graph.pipeline import PASSES

EXTREMES = (0, 1, -1, 2, 7, -7, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
NAMES = (
    "",
    "x",
    "?",
    "a+b",
    "a*b",
    "-a",
    "2*a",
    "a//2",
    "a/2",
    "Min(a,b)",
    "(((",
    "a b",
    "N" * 600,
    "n",
    "ä\n",
)
OPERATORS = sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})

WORDS = (*PRECISIONS, *FALLBACKS, *simd_levels())

# -- bytes


def damaged_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if not content:
            break
        place = rng.randrange(len(content))
        size = rng.choice((1, 2, 4, 16, 64))
        match rng.randrange(7):
            case 0:
                content[place] ^= 1 << rng.randrange(8)
            case 1:
                content[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del content[place : place + size]
            case 3:
                content[place:place] = content[place : place + size]
            case 4:
                content[place:place] = rng.randbytes(size)
            case 5:
                start = rng.randrange(len(other))
                content[place : place + size] = other[start : start + size]
            case _ if rng.random() < 0.2:
                del content[place:]
    return bytes(content)


# -- structure

_Change = Callable[[random.Random, onnx.ModelProto], None]


def damaged_structure(rng: random.Random, model: onnx.ModelProto) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(_CHANGES)(rng, result)
    return result


def _node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto:
    return rng.choice(model.graph.node) if model.graph.node else model.graph.node.add()


def _values(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    names = [info.name for info in (*graph.input, *graph.initializer)]
    return [*names, *(name for node in graph.node for name in node.output), "nowhere", ""]


def _drop_node(rng: random.Random, model: onnx.ModelProto) -> None:
    if model.graph.node:
        del model.graph.node[rng.randrange(len(model.graph.node))]


def _repeat_node(rng: random.Random, model: onnx.ModelProto) -> None:
    copy = model.graph.node.add()
    copy.CopyFrom(_node(rng, model))
    if rng.random() < 0.7:
        for index, name in enumerate(copy.output):
            copy.output[index] = f"{name}_again"


def _shuffle_nodes(rng: random.Random, model: onnx.ModelProto) -> None:
    nodes = list(model.graph.node)
    rng.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _change_operand(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    names = _values(model)
    match rng.randrange(4):
        case 0 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(names)
        case 1:
            node.input.append(rng.choice(names))
        case 2 if node.input:
            del node.input[rng.randrange(len(node.input))]
        case 3 if len(node.input) > 1:
            node.input[0], node.input[1] = node.input[1], node.input[0]


def _change_result(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    match rng.randrange(3):
        case 0 if node.output:
            node.output[0] = rng.choice(_values(model))
        case 1:
            node.output.append(rng.choice((*_values(model), "fresh")))
        case 2 if node.output:
            del node.output[-1]


def _change_operator(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if rng.random() < 0.9:
        node.op_type = rng.choice(OPERATORS)
    else:
        node.domain = rng.choice(("com.microsoft", "ai.onnx", "nobody", "ai.onnx.ml"))


def _change_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes or rng.random() < 0.2:
        node = _node(rng, model)
        name = rng.choice(
            ("axis", "axes", "perm", "to", "keepdims", "mode", "pads", "strides", "x")
        )
        value = rng.choice((rng.choice(EXTREMES), [rng.choice(EXTREMES)], "text", 0.5))
        node.attribute.append(helper.make_attribute(name, value))
        return
    attributes = rng.choice(nodes).attribute
    attribute = rng.choice(attributes)
    match rng.randrange(6):
        case 0:
            attributes.remove(attribute)
        case 1:
            attribute.type = rng.randrange(15)
        case 2:
            attribute.i = rng.choice(EXTREMES)
            attribute.f = rng.choice((float("nan"), float("inf"), -1.0, 0.0, 1e30))
        case 3:
            attribute.s = rng.choice(
                (b"", b"\xff\xfe", b"linear", b"SAME_UPPER", b"bij,bjk->bik", b"...i")
            )
        case 4 if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(EXTREMES)
        case _ if attribute.ints:
            del attribute.ints[-1]
        case _:
            attribute.ints.append(rng.choice(EXTREMES))


def _change_type(rng: random.Random, model: onnx.ModelProto) -> None:
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if infos:
        info = rng.choice(infos)
        if rng.random() < 0.2:
            info.ClearField("type")
        else:
            info.type.tensor_type.elem_type = rng.randrange(24)


def _change_dim(rng: random.Random, model: onnx.ModelProto) -> None:
    infos = [*model.graph.input, *model.graph.input, *model.graph.output]
    if not infos:
        return
    shape = rng.choice(infos).type.tensor_type.shape
    match rng.randrange(5):
        case 0 if shape.dim:
            rng.choice(shape.dim).dim_value = rng.choice(EXTREMES)
        case 1 | 2 if shape.dim:
            rng.choice(shape.dim).dim_param = rng.choice(NAMES)
        case 3 if shape.dim:
            del shape.dim[-1]
        case _:
            shape.dim.add().dim_param = rng.choice(NAMES)


def _change_constant(rng: random.Random, model: onnx.ModelProto) -> None:
    if not model.graph.initializer:
        return
    tensor = rng.choice(model.graph.initializer)
    match rng.randrange(7):
        case 0:
            tensor.data_type = rng.randrange(24)
        case 1 if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(EXTREMES)
        case 2:
            tensor.raw_data = tensor.raw_data[:-1]
        case 3:
            tensor.int64_data.append(rng.choice(EXTREMES))
        case 4:
            tensor.name = rng.choice(_values(model))
        case 5 if tensor.data_type == onnx.TensorProto.INT64 and tensor.raw_data:
            contents = np.frombuffer(tensor.raw_data, np.int64).copy()
            if contents.size:
                contents[rng.randrange(contents.size)] = rng.choice(EXTREMES)
            tensor.raw_data = contents.tobytes()
        case _:
            tensor.external_data.add(
                key="location", value=rng.choice(("../x", "/etc/passwd", "x", ""))
            )
            tensor.data_location = onnx.TensorProto.EXTERNAL


def _change_border(rng: random.Random, model: onnx.ModelProto) -> None:
    graph = model.graph
    match rng.randrange(5):
        case 0 if graph.input:
            del graph.input[rng.randrange(len(graph.input))]
        case 1:
            graph.output.add().name = rng.choice(_values(model))
        case 2 if graph.output:
            graph.output.add().CopyFrom(rng.choice(graph.output))
        case 3 if graph.initializer:
            tensor = rng.choice(graph.initializer)
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
        case 4 if graph.output:
            graph.output[0].name = rng.choice(_values(model))


def _change_header(rng: random.Random, model: onnx.ModelProto) -> None:
    match rng.randrange(4):
        case 0 if model.opset_import:
            model.opset_import[0].version = rng.choice((*range(1, 30), *EXTREMES))
        case 1:
            model.ir_version = rng.choice((0, 3, 9, 12, 2**40))
        case 2:
            model.opset_import.add(domain=rng.choice(("", "com.microsoft", "nobody")), version=1)
        case 3:
            del model.opset_import[:]


def _nest(rng: random.Random, model: onnx.ModelProto) -> None:
    """The nodes become a branch of an If, which becomes one of another, and so on."""
    graph = model.graph
    graph.initializer.append(helper.make_tensor("condition", onnx.TensorProto.BOOL, [], [True]))
    for level in range(rng.choice((1, 1, 2, 5))):
        body = onnx.GraphProto(name=f"body{level}", node=graph.node)
        results = []
        for info in graph.output:
            body.output.add().name = info.name
            results.append(f"{info.name}_{level}")
        del graph.node[:]
        graph.node.append(
            helper.make_node("If", ["condition"], results, then_branch=body, else_branch=body)
        )
        for info, name in zip(graph.output, results, strict=True):
            info.name = name


def _call(rng: random.Random, model: onnx.ModelProto) -> None:
    """Functions that call each other, in a circle sometimes."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    levels = rng.choice((1, 3, 30, 120))
    circle = rng.random() < 0.3
    for level in range(levels):
        callee = level - 1 if level else levels - 1 if circle else None
        inner = "Neg" if callee is None else f"f{callee}"
        twice = ["t"] if level < 6 and rng.random() < 0.5 else []  # they double
        names = ["x", *twice, "y"]
        domain = "" if callee is None else "f"
        nodes = [
            helper.make_node(inner, [a], [b], domain=domain) for a, b in itertools.pairwise(names)
        ]
        model.functions.append(helper.make_function("f", f"f{level}", ["x"], ["y"], nodes, opsets))
    model.opset_import.add(domain="f", version=1)
    names = [info.name for info in model.graph.input] or [""]
    model.graph.node.append(
        helper.make_node(f"f{levels - 1}", [rng.choice(names)], ["f_result"], domain="f")
    )
    model.graph.output.add().name = "f_result"


_CHANGES: tuple[_Change, ...] = (
    *(_drop_node, _repeat_node, _shuffle_nodes, _change_operand, _change_operand, _change_result),
    *(_change_operator, _change_operator, _change_attribute, _change_attribute, _change_attribute),
    *(_change_type, _change_dim, _change_dim, _change_constant, _change_constant, _change_border),
    *(_change_header, _nest, _call),
)

# -- options

_ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        3,
        -1,
        64,
        10**6,
        2**31,
        2**63,
        10**40,
        1.5,
        float("nan"),
        float("inf"),
    ),
    *(
        "",
        "f32",
        "bf16",
        "avx2",
        "simplify",
        b"x",
        [],
        {},
        (),
        {"n": (1, 2)},
        {"n": 3},
        {1: 2},
        ["x"],
    ),
    *(
        ["simplify"],
        {"simplify"},
        object(),
        np.int64(3),
        np.float32(2),
        np.ones(3),
        1j,
        int,
        "x" * 9999,
    ),
)


_INTEGERS = (0, 1, 2, 3, 4, 7, 64, 4095, 4096, 10_000, 1 << 16, 1 << 20, 1 << 30, 1 << 31, 1 << 62)


_NOT_DRAWN = ("cache", "check", "dump", "limits")
"""Those that write files, those that take long, and what is drawn by itself."""


def _plausible(rng: random.Random, declared: str, names: list[str]) -> Any:
    """A value of an option's type, which may make sense; `names` are those in the model."""
    match declared.removesuffix(" | None"):
        case "bool":
            return rng.random() < 0.5
        case "int":
            return rng.choice(_INTEGERS)
        case "float":
            return rng.choice((0.0, 1e-9, 0.01, 0.2, 5.0, float("inf")))
        case "str":
            return rng.choice(WORDS)
        case "frozenset[str]":
            return rng.sample([*PASSES, *names], rng.choice((1, 1, 2, 5)))
        case _:
            low = rng.choice((0, 0, 1, 2, 5))
            return {rng.choice(names): (low, low + rng.choice((0, 1, 40, 2**40)))}


def damaged_options(
    rng: random.Random, model: onnx.ModelProto
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options, and limits of fusion."""
    dims = [dim.dim_param for info in model.graph.input for dim in info.type.tensor_type.shape.dim]
    names = [*filter(None, dims), *(node.name for node in model.graph.node)]
    odd = 0.5 if rng.random() < 0.5 else 0.0

    def draw(kind: type, most: int) -> dict[str, Any]:
        declared = {f.name: str(f.type) for f in fields(kind) if f.name not in _NOT_DRAWN}
        return {
            name: rng.choice(_ODD) if rng.random() < odd else _plausible(rng, declared[name], names)
            for name in rng.sample(list(declared), rng.randint(1, most))
        }

    options = draw(dvm_graph.Options, 3)
    if rng.random() < odd / 10:
        options[rng.choice(("strct", "core", "", "__class__", "limit"))] = 1
    return options, draw(dvm_graph.FusionLimits, 2) if rng.random() < 0.4 else {}


# -- feeds


class _Odd:
    """Something that breaks when it is asked for its elements."""

    def __array__(self, *_: object, **__: object) -> None:
        raise RuntimeError("no elements")


def damaged_feeds(rng: random.Random, feeds: dict[str, Any]) -> Any:
    result: Any = dict(feeds)
    if rng.random() < 0.05:
        return rng.choice((None, [], list(feeds.values()), "x", 3, {1: 2}, {}))
    names = list(feeds) or ["x"]
    for name in rng.sample(names, rng.randint(1, min(2, len(names)))):
        result[name] = _damaged_feed(rng, feeds.get(name, np.ones(2, np.float32)))
    if rng.random() < 0.05:
        result[rng.choice(("nobody", "", 7))] = np.ones(2)
    if rng.random() < 0.05 and result:
        result.pop(next(iter(result)))
    return result


def _damaged_feed(rng: random.Random, x: Any) -> Any:
    def masked() -> Any:
        return np.ma.masked_array(x, rng.random() < 0.5)

    changes: tuple[Callable[[], Any], ...] = (
        x.tolist, lambda: tuple(x.tolist()) if x.ndim else x.item(), masked, lambda: None, _Odd,
        lambda: x.astype(x.dtype.newbyteorder(">")), lambda: np.asfortranarray(x),
        lambda: np.repeat(x, 2, 0)[::2] if x.ndim else x[()], lambda: x[::-1] if x.ndim else x,
        lambda: x.astype(object), lambda: x.astype(np.float64), lambda: x.astype(np.int32),
        lambda: x.astype(np.complex64), lambda: x.astype(str), lambda: x[None],
        lambda: x.reshape(-1), lambda: np.zeros((0, *x.shape[1:]), x.dtype), lambda: x.view(np.recarray),
        lambda: np.broadcast_to(x, (2, *x.shape)), lambda: memoryview(np.ascontiguousarray(x)),
        lambda: np.datetime64("2020-01-01"), lambda: "text", lambda: [[1], [1, 2]], lambda: {1: 2},
        lambda: iter([1.0]), lambda: range(3), lambda: 10**30, lambda: float("nan"), lambda: [True],
    )  # fmt: skip
    with np.errstate(all="ignore"):
        try:
            result = rng.choice(changes)()
        except (TypeError, ValueError):  # this one does not go with the dtype
            return None
    if isinstance(result, np.ndarray) and rng.random() < 0.1:
        result.flags.writeable = False
    return result
