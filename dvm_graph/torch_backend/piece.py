"""A piece of a graph as a program."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from dvm_graph.errors import ShapeError, border
from dvm_graph.ir import DType, Graph, Value
from dvm_graph.options import Options
from dvm_graph.passes import sink_transposes
from dvm_graph.pipeline import compile_graph
from dvm_graph.runtime import Program
from dvm_graph.runtime.assemble import assemble
from dvm_graph.symbolic import Builder, Dim, Facts, Meter, Symbols, symbols_of, unsolved_dims
from dvm_graph.symbolic.binders import needed_symbols, symbols_in
from dvm_graph.torch_backend.freezing import constant_of, packed_arrays
from dvm_graph.torch_backend.memory import array_of, tensor_of
from dvm_graph.torch_backend.sizes import guards_of, ranges_of
from dvm_graph.torch_backend.translation import (
    DTYPES,
    Translation,
    dim_of,
    number_of,
    shape_of,
    tell,
)

Order: TypeAlias = tuple[int, ...]
ORDER = "dvm_order"
"""Of the axes of a tensor, among what a node of torch's graph knows."""


_Input: TypeAlias = tuple[str, Order | None, torch.dtype | None]
"""The program's name of an argument; of a tensor the order of its axes there, and its type; of a size None, of a float its type only."""


class Piece(torch.nn.Module):
    """Runs a program in place of a module. To a program sizes are extents: where a number among the arguments is negative,
    the module runs; so it does where torch's operators gave a tensor of another type than it traced.
    """

    def __init__(
        self,
        program: Program,
        module: torch.fx.GraphModule,
        inputs: Sequence[_Input | None],
        orders: Sequence[Order],
        single: bool,
    ) -> None:
        """`inputs`: of each argument; None: the program has no use for it. `orders`: of the axes of each result."""
        super().__init__()
        self._program = program
        self._module = module
        self._inputs = inputs
        self.orders = orders
        self._as_they_are = [inverse(order) for order in orders]
        self._single = single

    def forward(self, *arguments: Any) -> Any:
        feeds = {}
        for known, argument in zip(self._inputs, arguments, strict=True):
            if known is None:
                continue
            name, order, dtype = known
            if order is None and dtype is not None:
                feeds[name] = np.array(argument, np.float64)
            elif order is None and argument >= 0:
                feeds[name] = _size(argument)
            elif order is not None and argument.dtype is dtype:
                feeds[name] = array_of(argument).transpose(order)
            else:
                return self._module(*arguments)
        results = [
            tensor_of(array.transpose(order))
            for array, order in zip(self._program.run(feeds, None), self._as_they_are, strict=True)
        ]
        return results[0] if self._single else tuple(results)


def compile_piece(
    module: torch.fx.GraphModule,
    options: Options,
    free: Collection[int] = (),
    constants: Mapping[torch.fx.Node, torch.Tensor] | None = None,
) -> Piece:
    """The program of a graph of operators that are all supported.

    Results lie in memory as torch's graph says, but for those whose numbers are in `free`: they lie as they come. `constants`: what
    some placeholders always are.

    Raises:
        DvmError: it does not compile.
    """
    constants = constants or {}
    with border("compile a graph of torch"):
        facts = Facts(Symbols(), Meter(options))
        graph = Graph("torch")
        translation = Translation(Builder(graph, facts, options))
        nodes = list(module.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        tensors = [node for node in placeholders if isinstance(node.meta["val"], torch.Tensor)]
        tell(facts, ranges_of(nodes))
        tell(facts, guards_of(nodes))
        floats = [node for node in placeholders if isinstance(node.meta["val"], torch.SymFloat)]
        orders = {node: order_of(node) for node in tensors}
        for node, order in orders.items():
            if node in constants:
                value = graph.constant(constant_of(constants[node], order), node.name)
            else:
                shape = shape_of(node, facts.symbols)
                dtype = DTYPES[node.meta["val"].dtype]
                value = Value(node.name, dtype, tuple(shape[axis] for axis in order))
                graph.inputs.append(value)
            translation.values[node] = translation.builder.transpose(value, inverse(order))
        for node in floats:
            graph.inputs.append(number_of(node))
            translation.values[node] = graph.inputs[-1]
        for node in nodes:
            if node.op == "call_function":
                translation.translate(node)
        (returned,) = (node.args[0] for node in nodes if node.op == "output")
        single = isinstance(returned, torch.fx.Node)
        results = (returned,) if single else returned
        lying = [order_of(node) for node in results]
        graph.outputs = [
            translation.values[node]
            if at in free
            else translation.builder.transpose(translation.values[node], order)
            for at, (node, order) in enumerate(zip(results, lying, strict=True))
        ]
        for at, order in _leave_orders(graph, facts, free).items():
            lying[at] = order
        graph.output_names = tuple(f"output{i}" for i in range(len(graph.outputs)))
        sizes = _needed_sizes(placeholders, graph, facts.symbols)
        graph.inputs += sizes.values()
        unsolved = unsolved_dims([value.shape or () for value in graph.inputs])
        unsolved += _unknown_symbols(graph)
        if unsolved:
            raise ShapeError(f"no argument tells what {unsolved[0]} is computed from")
        compiled = compile_graph(graph, facts, options)
        packed = packed_arrays(options)
        program = assemble(compiled.plan, options, release_packed=True, packed=packed)
    given = [node for node in tensors if node not in constants]
    types = {node: node.meta["val"].dtype for node in given} | dict.fromkeys(floats, torch.float64)
    inputs = [
        (node.name, orders.get(node), types.get(node)) if node in types or node in sizes else None
        for node in placeholders
    ]
    return Piece(program, module, inputs, lying, single)


def _leave_orders(graph: Graph, facts: Facts, free: Collection[int]) -> dict[int, Order]:
    """Outputs become what their transposes read, where their axes may lie in any order; which that is."""
    sink_transposes(graph, facts)
    orders = {}
    for at in free:
        value = graph.outputs[at]
        axes = tuple(range(value.rank))
        while (transpose := value.made_by("transpose")) is not None:
            value, perm = transpose.required(0), transpose.attrs["perm"]
            axes = tuple(perm[axis] for axis in axes)
        graph.outputs[at] = value
        orders[at] = inverse(axes)
    return orders


def inverse(order: Sequence[int]) -> Order:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def order_of(node: torch.fx.Node) -> Order:
    """The axes of a tensor as they lie in memory, outermost first, as far as it is known: a tensor that lies otherwise in
    a run is copied. What a piece made tells (`ORDER`), of others their strides.
    """
    if ORDER in node.meta:
        order: Order = node.meta[ORDER]
        return order
    tensor = node.meta["val"]
    strides = [
        stride if isinstance(stride, int) else stride.node.hint for stride in tensor.stride()
    ]
    axes = range(tensor.dim())
    if None in strides or 0 in strides:
        return tuple(axes)
    return tuple(sorted(axes, key=lambda axis: -strides[axis]))


def _needed_sizes(
    placeholders: Sequence[torch.fx.Node], graph: Graph, symbols: Symbols
) -> dict[torch.fx.Node, Value]:
    """Sizes among the arguments, as inputs without elements that have them for extents: so they bind symbols as
    the extents of tensors do. What is the extent of some tensor as it stands needs no help, nor what is computed from such.
    """
    bound = {dim for value in graph.inputs for dim in value.shape or () if not isinstance(dim, int)}
    given: dict[torch.fx.Node, Dim] = {
        node: dim_of(node, symbols)
        for node in placeholders
        if isinstance(node.meta["val"], int | torch.SymInt)
    }
    told = {dim for dim in (*bound, *given.values()) if symbols_of(dim) == {dim}}
    return {
        node: Value(node.name, DType.UINT8, (dim, 0))
        for node, dim in given.items()
        if dim not in bound and (dim in told or not symbols_of(dim) <= told)
    }


def _unknown_symbols(graph: Graph) -> list[Dim]:
    """Symbols of dims that operators need but no input has: text of sizes, say, that is no expression to dims."""
    known = {symbol for value in graph.inputs for symbol in symbols_in(value.shape)}
    needed = (symbol for node in graph.nodes for symbol in needed_symbols(node))
    return [symbol for symbol in dict.fromkeys(needed) if symbol not in known]


def _size(argument: int) -> np.ndarray[Any, Any]:
    return np.empty((argument, 0), np.uint8)
