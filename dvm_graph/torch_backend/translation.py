"""A graph of torch as basic operators, node by node.

`TABLE` has a function per operator of torch's core set, which the files of families enter: it takes a translation
and the operator's arguments, tensors as values, sizes as dims. Where ONNX has the operator too, its decomposition
is used (`Translation.onnx`).

An operator is supported where its function succeeds on a node's own arguments: nothing else says so.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from dvm_graph import ir
from dvm_graph.decompose.registry import find
from dvm_graph.errors import DvmError, UnsupportedError
from dvm_graph.ir import DType, Graph, Value
from dvm_graph.options import Options
from dvm_graph.symbolic import (
    Builder,
    Dim,
    Facts,
    Symbols,
    Unmetered,
    add,
    parse_dim,
    sub,
    symbols_of,
)
from dvm_graph.symbolic.dims import floordiv, maximum, minimum, mod, mul
from dvm_graph.torch_backend.sizes import Between, ranges_of, symbolic, symbols_in
from dvm_graph.torch_backend.stream_builder import StreamBuilder

DTYPES: dict[torch.dtype, DType] = {
    torch.float32: DType.FLOAT32,
    torch.float64: DType.FLOAT64,
    torch.float16: DType.FLOAT16,
    torch.bfloat16: DType.BFLOAT16,
    torch.int8: DType.INT8,
    torch.int16: DType.INT16,
    torch.int32: DType.INT32,
    torch.int64: DType.INT64,
    torch.uint8: DType.UINT8,
    torch.bool: DType.BOOL,
}

Function: TypeAlias = Callable[..., Any]
_Entered = TypeVar("_Entered", bound=Function)
TABLE: dict[Any, Function] = {}
"""By operators of torch."""
VIEWS: set[str] = set()
"""Names of those that compute nothing."""
UNWRITTEN = (
    torch.ops.aten.new_empty_strided.default,
    torch.ops.aten.empty_permuted.default,
)
"""Operators whose elements may be any numbers: what a part of is written to, and gradients of such."""
UNSUPPORTED = (DvmError, AssertionError, LookupError, TypeError, ValueError)
"""What functions of the table raise for arguments that they do not take."""
_ONNX_VERSION = 21
_OPTIONS = Options()
"""Whether an operator can be translated hangs on none."""
_MAX_EXPONENT = 8


@dataclass(frozen=True, slots=True)
class Number:
    """A float among the arguments of operators, which a run gives: what it is computed with tells in which type."""

    value: Value


class Translation:
    """Builds the basic operators of torch's: with a `Builder` those of a graph's nodes, with a `StreamBuilder` those
    of eager calls.
    """

    def __init__(self, builder: Builder | StreamBuilder) -> None:
        self.builder = builder
        self.values: dict[Node, Any] = {}
        """Of tensors and of lists of them."""
        self.target: Any = None
        """The operator at hand."""
        self.meta: Any = None
        """What it gives: tensors with dtypes and sizes."""
        self.traced: Sequence[Any] = ()
        """Its arguments as torch traced them: tensors with their strides, sizes as torch knows them. Of an eager call there are none."""
        self._sizes: dict[Dim, torch.SymInt] = {}
        """What is symbolic of the operands, as torch knows it."""

    @property
    def decomposer(self) -> Builder:
        """The builder as decompositions take it: what they ask of one, a stream's has too."""
        return cast(Builder, self.builder)

    @property
    def dtype(self) -> DType:
        """Of the (first) result."""
        return DTYPES[_first(self.meta).dtype]

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Of the (first) result."""
        return self.dims(_first(self.meta).shape)

    def dims(self, sizes: Sequence[Any]) -> tuple[Dim, ...]:
        return tuple(_dim(size, self.builder.facts.symbols) for size in sizes)

    def tells(self, condition: Callable[..., Any], *dims: Dim) -> bool:
        """Whether a condition on sizes of the operands holds wherever torch's guards let the graph run."""
        sizes = [self._sizes.get(dim, dim) for dim in dims]
        known = all(isinstance(size, int | torch.SymInt) for size in sizes)
        return known and statically_known_true(condition(*sizes))

    def translate(self, node: Node) -> None:
        """Adds a node whose operands are known.

        Raises:
            DvmError: its arguments do not allow it.
        """
        self.builder.inside = (node.name,), {}, f"{node.name}."
        if node.target is operator.getitem:
            source, index = node.args
            self.values[node] = self.values[source][index]
            return
        symbols = self.builder.facts.symbols
        for operand in node.all_input_nodes:
            self._sizes.update((_dim(size, symbols), size) for size in symbolic(operand))
        self.traced = torch.fx.map_arg(node.args, lambda operand: operand.meta["val"])
        arguments = [self._argument(argument) for argument in node.args]
        named = {name: self._argument(argument) for name, argument in node.kwargs.items()}
        self.values[node] = self.call(node.target, node.meta["val"], arguments, named)

    def call(self, target: Any, meta: Any, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        """The result of an operator; tensors among its arguments are values.

        Raises:
            DvmError: its arguments do not allow it.
        """
        self.target, self.meta = target, meta
        result = TABLE[target](self, *arguments, **named)
        for value, given in zip(_listed(result), _listed(meta), strict=False):
            if value is not None and value.dtype is not DTYPES[given.dtype]:
                raise UnsupportedError(f"{target} gives {value.dtype}, not {given.dtype}")
        return result

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            meta = argument.meta["val"]
            if isinstance(meta, torch.SymFloat):
                return Number(self.values[argument])
            tensor = isinstance(meta, torch.Tensor | tuple | list)
            return self.values[argument] if tensor else dim_of(argument, self.builder.facts.symbols)
        if isinstance(argument, list | tuple):
            return [self._argument(item) for item in argument]
        return argument

    def value(self, operand: Any, dtype: DType) -> Value:
        """An operand, number or not, in this type."""
        if isinstance(operand, Value):
            return self.builder.cast(operand, dtype)
        if isinstance(operand, Number):
            return self.builder.cast(operand.value, dtype)
        if isinstance(operand, int | float | bool):
            return self.builder.scalar(operand, dtype)
        if operand is None or isinstance(operand, list | tuple | str):
            raise UnsupportedError(f"{operand!r:.50} is no number")
        size = self.builder.dims((operand,), ())
        return (
            truth_of(self.builder, size) if dtype is DType.BOOL else self.builder.cast(size, dtype)
        )

    def onnx(self, op: str, *operands: Value | None, **attrs: Any) -> Value:
        """The result of an ONNX operator that has one.

        Raises:
            UnsupportedError: it has no decomposition for these operands.
        """
        return self.onnx_results(op, *operands, **attrs)[0]

    def onnx_results(self, op: str, *operands: Value | None, **attrs: Any) -> list[Value]:
        """The results of an ONNX operator that are results of torch's, too.

        Raises:
            UnsupportedError: it has no decomposition for these operands.
        """
        given = [meta for meta in _listed(self.meta) if meta is not None]
        results = tuple(Value("result", DTYPES[meta.dtype]) for meta in given)
        node = ir.Node(op, op, operands, results, attrs, domain="", version=_ONNX_VERSION)
        node.origin = self.builder.inside[0]
        function = find(node)
        found = None if function is None else function(self.decomposer, node, operands)
        if found is None or None in found:
            raise UnsupportedError(f"{op} has no decomposition for this")
        return [value for value in found if value is not None]


def truth_of(builder: Builder | StreamBuilder, x: Value) -> Value:
    """What of numbers is not 0."""
    return x if x.dtype is DType.BOOL else builder.ne(x, builder.scalar(0, x.dtype))


def is_supported(node: Node) -> bool:
    """Whether a node can be translated: found out by doing so, on its own."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], Node) and is_supported(node.args[0])
    if node.target not in TABLE or any("val" not in n.meta for n in (node, *node.all_input_nodes)):
        return False
    if not symbols_in(node.all_input_nodes).keys() >= symbols_in((node,)).keys():
        return False  # torch finds a size when it runs it: of a part whose end data tells, say
    tensors = [*_listed(node.meta["val"]), *(n.meta["val"] for n in node.all_input_nodes)]
    if not all(_is_plain(item) for tensor in tensors for item in _listed(tensor)):
        return False
    facts = Facts(Symbols(), Unmetered())
    translation = Translation(Builder(Graph("one"), facts, _OPTIONS))
    for operand in node.all_input_nodes:
        metas = operand.meta["val"]
        values = [
            Value(f"{operand.name}.{i}", DTYPES[meta.dtype], _shape(meta, facts.symbols))
            for i, meta in enumerate(_listed(metas))
            if isinstance(meta, torch.Tensor)
        ]
        if isinstance(metas, torch.SymFloat):
            values = [number_of(operand)]
        translation.values[operand] = (
            values if isinstance(metas, list | tuple) else next(iter(values), None)
        )
    try:
        tell(facts, ranges_of((node, *node.all_input_nodes)))
        translation.translate(node)
    except UNSUPPORTED:
        return False
    taken = [user.args[1] for user in node.users if user.target is operator.getitem]
    results = translation.values[node]
    return all(index < len(results) and results[index] is not None for index in taken)


def is_operator(node: Node) -> bool:
    """Whether a node computes: pieces of views alone are not worth a call. One of several results is what they are."""
    while node.target is operator.getitem:
        node = node.args[0]
    return node.op == "call_function" and _name(node.target) not in VIEWS


def tell(facts: Facts, known: Iterable[Between]) -> None:
    """What torch's guards hold sizes to: an index that is a number, say, is inside of an extent that they let pass."""
    for expression, low, high in known:
        dim = _readable(expression, facts.symbols)
        if dim is None:
            continue
        if low == high == 0:
            facts.assume_equal(dim, 0, "torch guards it")
        else:
            facts.assume_range(dim, low, high, "torch guards it")


def _readable(expression: Any, symbols: Symbols) -> Dim | None:
    """An expression of sizes as a dim; None: of fractions, say, which would become a symbol of its own."""
    dim = _dim_of(expression, symbols)
    known = {str(symbol) for symbol in expression.free_symbols}
    return dim if {symbol.name for symbol in symbols_of(dim)} <= known else None


def dim_of(node: Node, symbols: Symbols) -> Dim:
    """A size as a dim."""
    return _dim(node.meta["val"], symbols)


def number_of(node: Node) -> Value:
    """A float as it comes among the arguments of a program."""
    return Value(node.name, DType.FLOAT64, ())


def shape_of(node: Node, symbols: Symbols) -> tuple[Dim, ...]:
    return _shape(node.meta["val"], symbols)


def _shape(tensor: torch.Tensor, symbols: Symbols) -> tuple[Dim, ...]:
    return tuple(_dim(size, symbols) for size in tensor.shape)


def _dim(size: Any, symbols: Symbols) -> Dim:
    return size if isinstance(size, int) else _dim_of(size.node.expr, symbols)


def _divided(a: Dim, b: Dim) -> Dim:
    """By a size, rounded down. torch rounds up as (n + size - 1) // size: of a multiple of the size, just below the next one."""
    if not isinstance(a, int) and mod(add(a, 1), b) == 0:
        return sub(floordiv(add(a, 1), b), 1)
    return floordiv(a, b)


_FOLDED: dict[str, Callable[[Dim, Dim], Dim]] = {
    "Add": add,
    "Mul": mul,
    "Max": maximum,
    "Min": minimum,
    "FloorDiv": _divided,
    "CleanDiv": floordiv,
    "Mod": mod,
    "PythonMod": mod,
}
"""By classes of torch's expressions."""


def _dim_of(expression: Any, symbols: Symbols) -> Dim:
    """An expression of sizes, part by part; one with parts that dims have none of is what its text says: a symbol, at worst."""
    found: dict[Any, Dim] = {}
    try:
        return _folded(expression, symbols, found)
    except LookupError:
        return parse_dim(str(expression), symbols)


def _folded(expression: Any, symbols: Symbols, found: dict[Any, Dim]) -> Dim:
    """`found`: parts that are dims already.

    Raises:
        LookupError: some part is no dim.
    """
    if expression in found:
        return found[expression]
    if expression.is_Integer:
        dim: Dim = int(expression)
    elif expression.is_Symbol:
        dim = symbols.get(expression.name)
    elif expression.is_Pow and expression.exp.is_Integer and 0 < expression.exp <= _MAX_EXPONENT:
        dim = reduce(mul, [_folded(expression.base, symbols, found)] * int(expression.exp))
    else:
        fold = _FOLDED[type(expression).__name__]
        dim = reduce(fold, (_folded(part, symbols, found) for part in expression.args))
    found[expression] = dim
    return dim


def _is_plain(item: Any) -> bool:
    if isinstance(item, torch.Tensor):
        return item.device.type == "cpu" and item.dtype in DTYPES and item.layout is torch.strided
    return item is None or isinstance(item, int | torch.SymInt | torch.SymFloat)


def _listed(item: Any) -> Sequence[Any]:
    return item if isinstance(item, list | tuple) else (item,)


def _first(meta: Any) -> torch.Tensor:
    return next(tensor for tensor in _listed(meta) if tensor is not None)


def axis_of(x: Value, axis: int) -> int:
    """Counted from the front. To torch a number has an axis, too."""
    return axis % max(x.rank, 1)


def _name(target: Any) -> str:
    name: str = torch.fx.node._get_qualified_name(target)
    return name


def entry(*targets: Any, view: bool = False) -> Callable[[_Entered], _Entered]:
    """Enters a function into the table; of a `view`, into the list of those too."""

    def enter(function: _Entered) -> _Entered:
        TABLE.update(dict.fromkeys(targets, function))
        if view:
            VIEWS.update(_name(target) for target in targets)
        return function

    return enter
