"""Images whose channels onnxruntime laid in blocks, as images of planes again.

In: the nodes and initializers of a graph that onnxruntime optimized for this machine and saved, in which convolutions and
pools of domain com.microsoft.nchwc have weights and images in an order of its own. Out: ONNX's operators over the
same images. Channels stay as many as blocks made them: those that were added are zeros, and are cut off where they were.

All nodes of a graph are rewritten or none: an operator that is left in between would read another order. So would one
that looks where elements lie: images in blocks are read by operators that do not, and by reshapes that lay the block behind
all else for sums and products of images of unlike sizes. What is blocked never leaves its graph. How many channels a block
has no file says; it is what the installed onnxruntime takes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dvm_graph.import_.attributes import names_read
from dvm_graph.import_.vendor_library import channels_of_block
from dvm_graph.ir import Array

_Nodes: TypeAlias = Sequence[onnx.NodeProto]
_Tensors: TypeAlias = Sequence[onnx.TensorProto]

_DOMAIN = "com.microsoft.nchwc"
_POOLS = ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")
_BY_ELEMENT = frozenset(
    [
        "Add",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Mul",
        "QuickGelu",
        "Relu",
        "Sigmoid",
        "Sum",
        "Tanh",
    ]
)
"""Operators of other domains that read blocks: they do not look where elements lie."""
_LEAST_OPSET = 11
"""Of the forms of Pad and Resize that are written here."""


def plain_channels(
    graph: onnx.GraphProto,
    initializers: _Tensors,
    read: Callable[[onnx.TensorProto], Array],
    opset: int,
) -> tuple[_Nodes, _Tensors]:
    """The nodes and initializers without blocks; as they are where there are none, or one is not understood.

    `read` gives the contents of an initializer, `opset` is that of the operators of domain ai.onnx.
    """
    nodes: _Nodes = graph.node
    if all(node.domain != _DOMAIN for node in nodes):
        return nodes, initializers
    block = channels_of_block()
    if block is None or opset < _LEAST_OPSET:
        return nodes, initializers
    try:
        writer = _Writer(block, {tensor.name: tensor for tensor in initializers}, read)
        plain = [new for node in nodes for new in writer.plain(node)]
        writer.demand_planes(info.name for info in graph.output)
    except _NotUnderstoodError:
        return nodes, initializers
    return plain, [*initializers, *writer.made]


class _Order(enum.Enum):
    """How an image lies."""

    BLOCKS = enum.auto()
    """[images, channels, rows, columns] of blocks of channels."""
    SPLIT = enum.auto()
    """The same, as [images, blocks, rows, columns, channels of a block]."""


class _NotUnderstoodError(Exception):
    """An operator or weights of a form that is written nowhere."""


class _Writer:
    def __init__(
        self,
        block: int,
        initializers: dict[str, onnx.TensorProto],
        read: Callable[[onnx.TensorProto], Array],
    ) -> None:
        self._block, self._initializers, self._read = block, initializers, read
        self._weights: dict[tuple[str, int], str] = {}
        """Names of weights without blocks, by those of weights with, and the groups they are of."""
        self._orders: dict[str, _Order] = {}
        """Of values that do not lie as ONNX has it."""
        self.made: list[onnx.TensorProto] = []

    def plain(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """What stands for a node."""
        if node.domain != _DOMAIN:
            yield self._between(node)
            return
        self._demand_order(node)
        if node.op_type != "ReorderOutput":
            self._orders.update(dict.fromkeys(node.output, _Order.BLOCKS))
        if node.op_type == "ReorderInput":
            yield from self._padded(node)
        elif node.op_type == "ReorderOutput":
            yield from self._cut(node)
        elif node.op_type == "Conv":
            yield self._convolution(node)
        elif node.op_type in _POOLS:
            yield self._like(node, node.op_type, list(node.input))
        elif node.op_type == "Upsample":
            yield self._resized(node)
        else:
            raise _NotUnderstoodError

    def demand_planes(self, names: Iterable[str]) -> None:
        """Nobody knows of blocks who reads these."""
        if any(name in self._orders for name in names):
            raise _NotUnderstoodError

    def _demand_order(self, node: onnx.NodeProto) -> None:
        """Whether images lie as an operator of blocks reads them; a convolution may read planes."""
        least, most = (2, 4) if node.op_type == "Conv" else (1, 1)
        if not least <= len(node.input) <= most or len(node.output) != 1:
            raise _NotUnderstoodError
        x, others = self._orders.get(node.input[0]), node.input[3:]
        wanted = None if node.op_type == "ReorderInput" else _Order.BLOCKS
        planes = node.op_type == "Conv" and x is None
        if not (x is wanted or planes) or any(
            self._orders.get(name) is not wanted for name in others
        ):
            raise _NotUnderstoodError

    def _between(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """An operator of another domain, which may read images in blocks."""
        orders = {self._orders.get(name) for name in names_read(node) if name}
        if orders.isdisjoint(_Order):
            return node
        (order, *others) = orders
        if node.op_type == "Reshape":
            order = self._laid(node)
        elif others or not (
            node.op_type in _BY_ELEMENT
            or (
                node.op_type == "Concat"
                and order is _Order.BLOCKS
                and _attribute(node, "axis", 0) == 1
            )
        ):
            raise _NotUnderstoodError
        self._orders.update(dict.fromkeys(node.output, order))
        if node.op_type == "Reshape":  # planes lie as they did
            return helper.make_node("Identity", node.input[:1], node.output, name=node.name)
        return node

    def _laid(self, node: onnx.NodeProto) -> _Order:
        """How a reshape of an image has it lie."""
        if len(node.input) != 2:
            raise _NotUnderstoodError
        target = self._initializers.get(node.input[1])
        order = self._orders.get(node.input[0])
        extents = [] if target is None else self._read(target).tolist()
        if order is _Order.BLOCKS and extents[:1] + extents[2:] == [0, 0, 0, self._block]:
            return _Order.SPLIT
        if order is _Order.SPLIT and extents[:1] + extents[2:] == [0, 0, 0]:
            return _Order.BLOCKS
        raise _NotUnderstoodError

    def _padded(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Zeros behind the channels, up to whole blocks."""
        (x,), (y,) = node.input, node.output
        if _attribute(node, "channels_last", 0):
            yield self._step(node, "Transpose", [x], "first", perm=[0, 3, 1, 2])
            x = _inner(y, "first")
        yield self._step(node, "Shape", [x], "shape")
        yield self._step(node, "Gather", [_inner(y, "shape"), self._integers(y, 1)], "channels")
        yield self._step(node, "Neg", [_inner(y, "channels")], "less")
        block = self._integers(y, self._block)
        yield self._step(node, "Mod", [_inner(y, "less"), block], "lacking")  # signed as the block
        parts = [self._integers(y, 0, 0, 0, 0, 0), _inner(y, "lacking"), self._integers(y, 0, 0)]
        yield self._step(node, "Concat", parts, "pads", axis=0)
        yield helper.make_node("Pad", [x, _inner(y, "pads")], [y], name=node.name)

    def _cut(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """The channels that were there before blocks."""
        (x,), (y,) = node.input, node.output
        last = bool(_attribute(node, "channels_last", 0))
        count = self._integers(y, _attribute(node, "channels", 0))
        start, axis = self._integers(y, 0), self._integers(y, 1)
        cut = _inner(y, "cut") if last else y
        yield helper.make_node("Slice", [x, start, count, axis], [cut], name=node.name)
        if last:
            yield helper.make_node("Transpose", [cut], [y], name=node.name, perm=[0, 2, 3, 1])

    def _convolution(self, node: onnx.NodeProto) -> onnx.NodeProto:
        x, weights, *others = node.input
        inputs = [x, self._plain_weights(weights, _attribute(node, "group", 1)), *others]
        fused = len(inputs) > 3 or bool(_attribute(node, "activation", b""))
        return self._like(node, "FusedConv" if fused else "Conv", inputs)

    def _plain_weights(self, name: str, groups: int) -> str:
        """The name of weights [outputs, inputs, kernel...], whose outputs, and inputs unless they are read as planes or
        by channels alone, lie in blocks behind the kernel.
        """
        found = self._weights.get((name, groups))
        if found is not None:
            return found
        tensor = self._initializers.get(name)
        if tensor is None or len(tensor.dims) != 4 or tensor.dims[0] % self._block:
            raise _NotUnderstoodError
        data, block = self._read(tensor), self._block
        outputs, inputs, *kernel = data.shape
        if inputs < block:
            moved = data.reshape(outputs // block, inputs, *kernel, block).transpose(0, 4, 1, 2, 3)
        elif inputs % block == 0:
            shape = (outputs // block, inputs // block, *kernel, block, block)
            moved = data.reshape(shape).transpose(0, 5, 1, 4, 2, 3)
        else:
            raise _NotUnderstoodError
        plain = self._weights[name, groups] = f"{name}.plain.{groups}"
        array = np.ascontiguousarray(moved).reshape(data.shape)
        self.made.append(numpy_helper.from_array(array, plain))
        return plain

    def _resized(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """By whole numbers; each nearest element is repeated."""
        (x,), (y,) = node.input, node.output
        linear = _attribute(node, "mode", b"nearest") == b"linear"
        mode = _attribute(node, "coordinate_transformation_mode", b"half_pixel")
        scales = np.asarray(_attribute(node, "scales", ()), np.float32)
        if scales.size != 4:
            raise _NotUnderstoodError
        return helper.make_node(
            "Resize",
            [x, "", self._constant(y, scales)],
            [y],
            name=node.name,
            mode="linear" if linear else "nearest",
            coordinate_transformation_mode=mode if linear else "asymmetric",
            nearest_mode="floor",
        )

    def _like(self, node: onnx.NodeProto, op: str, inputs: Sequence[str]) -> onnx.NodeProto:
        """An operator with a node's attributes."""
        new = helper.make_node(op, inputs, node.output, name=node.name)
        new.domain = "com.microsoft" if op == "FusedConv" else ""
        activation = ("activation", "activation_params")
        new.attribute.extend(a for a in node.attribute if a.name not in activation or new.domain)
        return new

    def _step(
        self, node: onnx.NodeProto, op: str, inputs: Sequence[str], result: str, **attrs: Any
    ) -> onnx.NodeProto:
        """A node that only another one of the same origin reads."""
        return helper.make_node(
            op, inputs, [_inner(node.output[0], result)], name=node.name, **attrs
        )

    def _integers(self, stem: str, *numbers: int) -> str:
        return self._constant(stem, np.asarray(numbers, np.int64))

    def _constant(self, stem: str, array: Array) -> str:
        name = _inner(stem, f"constant.{len(self.made)}")
        self.made.append(numpy_helper.from_array(array, name))
        return name


def _inner(stem: str, name: str) -> str:
    return f"{stem}.plain.{name}"


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = (entry for entry in node.attribute if entry.name == name)
    entry = next(found, None)
    return default if entry is None else helper.get_attribute_value(entry)
