"""torch's operators as basic operators.

`TABLE` has a function per operator of torch's core set: it takes a translation and the operator's arguments, tensors as
values, sizes as dims. Where ONNX has the operator too, its decomposition is used (`Translation.onnx`).

An operator is supported where its function succeeds on a node's own arguments: nothing else says so.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch._decomp import get_decompositions
from torch.fx import Node

from dvm_graph import ir
from dvm_graph.decompose.registry import find
from dvm_graph.errors import DvmError, UnsupportedError
from dvm_graph.ir import DType, Graph, Value
from dvm_graph.options import Options
from dvm_graph.symbolic import Builder, Dim, Facts, Meter, Symbols, add, parse_dim, product, sub

aten, prims = torch.ops.aten, torch.ops.prims

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

DECOMPOSED = get_decompositions(
    [
        *(aten.native_layer_norm_backward, aten.native_group_norm_backward, aten.gelu_backward),
        *(aten._softmax_backward_data, aten._log_softmax_backward_data),
        *(aten.tanh_backward, aten.sigmoid_backward, aten.threshold_backward, aten.silu),
        *(aten.silu_backward, aten.native_dropout_backward, aten.mse_loss, aten.mse_loss_backward),
        *(aten.masked_fill, aten.slice_backward, aten.select_backward, aten.addcmul, aten.addcdiv),
        *(aten.leaky_relu, aten.elu, aten.hardtanh, aten.hardswish, aten.hardsigmoid, aten.mish),
        *(aten.softplus, aten.baddbmm, aten.rsub, aten.lerp, aten.var_mean, aten.new_zeros),
        *(aten.new_full, aten.new_ones, aten.zeros_like, aten.ones_like, aten.std, aten.rms_norm),
    ]
)
"""What torch itself breaks down, beyond its core."""

Function: TypeAlias = Callable[..., Any]
TABLE: dict[Any, Function] = {}
_VIEWS: list[str] = []
_ONNX_VERSION = 21


class Translation:
    """Builds the basic operators of a graph's nodes."""

    def __init__(self, graph: Graph, facts: Facts) -> None:
        self.builder = Builder(graph, facts)
        self.values: dict[Node, Any] = {}
        """Of tensors and of lists of them."""
        self.node: Node | None = None

    @property
    def dtype(self) -> DType:
        """Of the (first) result."""
        return DTYPES[_first(self.meta).dtype]

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Of the (first) result."""
        return self.dims(_first(self.meta).shape)

    @property
    def meta(self) -> Any:
        assert self.node is not None
        return self.node.meta["val"]

    def dims(self, sizes: Sequence[Any]) -> tuple[Dim, ...]:
        return tuple(_dim(size, self.builder.facts.symbols) for size in sizes)

    def translate(self, node: Node) -> None:
        """Adds a node whose operands are known.

        Raises:
            DvmError: its arguments do not allow it.
        """
        self.node = node
        self.builder.inside = (node.name,), {}, f"{node.name}."
        if node.target is operator.getitem:
            source, index = node.args
            self.values[node] = self.values[source][index]
            return
        arguments = [self._argument(argument) for argument in node.args]
        named = {name: self._argument(argument) for name, argument in node.kwargs.items()}
        result = TABLE[node.target](self, *arguments, **named)
        for value, meta in zip(_listed(result), _listed(node.meta["val"]), strict=False):
            if value is not None and value.dtype is not DTYPES[meta.dtype]:
                raise UnsupportedError(f"{node.target} gives {value.dtype}, not {meta.dtype}")
        self.values[node] = result

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            meta = argument.meta["val"]
            tensor = isinstance(meta, torch.Tensor | tuple | list)
            return self.values[argument] if tensor else dim_of(argument, self.builder.facts.symbols)
        if isinstance(argument, list | tuple):
            return [self._argument(item) for item in argument]
        return argument

    def value(self, operand: Any, dtype: DType) -> Value:
        """An operand, number or not, in this type."""
        if isinstance(operand, Value):
            return self.builder.cast(operand, dtype)
        if isinstance(operand, int | float | bool):
            return self.builder.scalar(operand, dtype)
        raise UnsupportedError(f"{operand!r:.50} is computed from sizes")

    def onnx(self, op: str, *operands: Value | None, results: int = 1, **attrs: Any) -> list[Value]:
        """The results of an ONNX operator.

        Raises:
            UnsupportedError: it has no decomposition for these operands.
        """
        outputs = tuple(Value(f"result{i}", self.dtype) for i in range(results))
        node = ir.Node(op, op, operands, outputs, attrs, domain="", version=_ONNX_VERSION)
        node.origin = self.builder.inside[0]
        function = find(node)
        found = None if function is None else function(self.builder, node, operands)
        if found is None:
            raise UnsupportedError(f"{op} has no decomposition for this")
        return [value for value in found if value is not None]


def is_supported(node: Node) -> bool:
    """Whether a node can be translated: found out by doing so, on its own."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], Node) and is_supported(node.args[0])
    if node.target not in TABLE:
        return False
    tensors = [*_listed(node.meta["val"]), *(n.meta.get("val") for n in node.all_input_nodes)]
    if not all(_is_plain(item) for tensor in tensors for item in _listed(tensor)):
        return False
    facts = Facts(Symbols(), Meter(Options()))
    translation = Translation(Graph("one"), facts)
    for operand in node.all_input_nodes:
        metas = operand.meta["val"]
        values = [
            Value(f"{operand.name}.{i}", DTYPES[meta.dtype], _shape(meta, facts.symbols))
            for i, meta in enumerate(_listed(metas))
            if isinstance(meta, torch.Tensor)
        ]
        translation.values[operand] = values if isinstance(metas, list | tuple) else values[:1]
        if isinstance(metas, torch.Tensor):
            translation.values[operand] = values[0]
    try:
        translation.translate(node)
    except (DvmError, AssertionError, LookupError, TypeError, ValueError):
        return False
    return True


def is_operator(node: Node) -> bool:
    """Whether a node computes: pieces of views alone are not worth a call."""
    return node.op == "call_function" and _name(node.target) not in _VIEWS


def dim_of(node: Node, symbols: Symbols) -> Dim:
    """A size as a dim."""
    return _dim(node.meta["val"], symbols)


def shape_of(node: Node, symbols: Symbols) -> tuple[Dim, ...]:
    return _shape(node.meta["val"], symbols)


def _shape(tensor: torch.Tensor, symbols: Symbols) -> tuple[Dim, ...]:
    return tuple(_dim(size, symbols) for size in tensor.shape)


def _dim(size: Any, symbols: Symbols) -> Dim:
    return size if isinstance(size, int) else parse_dim(str(size.node.expr), symbols)


def _is_plain(item: Any) -> bool:
    if isinstance(item, torch.Tensor):
        return item.device.type == "cpu" and item.dtype in DTYPES and item.layout is torch.strided
    return item is None or isinstance(item, int | torch.SymInt)


def _listed(item: Any) -> Sequence[Any]:
    return item if isinstance(item, list | tuple) else (item,)


def _first(meta: Any) -> torch.Tensor:
    return next(tensor for tensor in _listed(meta) if tensor is not None)


def _name(target: Any) -> str:
    name: str = torch.fx.node._get_qualified_name(target)
    return name


# -- the table


def _enter(*targets: Any, view: bool = False) -> Callable[[Function], Function]:
    def enter(function: Function) -> Function:
        TABLE.update(dict.fromkeys(targets, function))
        if view:
            _VIEWS.extend(_name(target) for target in targets)
        return function

    return enter


def _promoted(*operands: Any) -> DType:
    """The type in which torch computes with operands of several."""
    metas = [_sample(operand) for operand in operands]
    dtype = metas[0]
    for other in metas[1:]:
        dtype = torch.result_type(dtype, other)
        dtype = torch.empty((1,), dtype=dtype) if isinstance(dtype, torch.dtype) else dtype
    return DTYPES[dtype.dtype if isinstance(dtype, torch.Tensor) else torch.get_default_dtype()]


_TORCH = {dtype: name for name, dtype in DTYPES.items()}


def _sample(operand: Any) -> Any:
    if isinstance(operand, Value):
        return torch.empty((1,) * operand.rank, dtype=_TORCH[operand.dtype])
    return operand


def _unary(name: str) -> Function:
    def build(t: Translation, x: Value) -> Value:
        return getattr(t.builder, name)(t.value(x, t.dtype))  # type: ignore[no-any-return]

    return build


def _test(name: str) -> Function:
    def build(t: Translation, x: Value) -> Value:
        return getattr(t.builder, name)(x)  # type: ignore[no-any-return]

    return build


def _binary(name: str) -> Function:
    def build(t: Translation, a: Any, b: Any) -> Value:
        return t.builder.op(name, t.value(a, t.dtype), t.value(b, t.dtype))

    return build


def _compare(name: str) -> Function:
    def build(t: Translation, a: Any, b: Any) -> Value:
        dtype = _promoted(a, b)
        return t.builder.op(name, t.value(a, dtype), t.value(b, dtype))

    return build


def _logical(name: str) -> Function:
    def build(t: Translation, a: Value, b: Value) -> Value:
        return t.builder.op(name, _truth(t, a), _truth(t, b))

    return build


def _truth(t: Translation, x: Value) -> Value:
    return x if x.dtype is DType.BOOL else t.builder.ne(x, t.builder.scalar(0, x.dtype))


for _op in (
    *("abs", "neg", "sign", "sqrt", "rsqrt", "reciprocal", "exp", "log", "log1p", "sin", "cos"),
    *("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "tanh"),
    *("sigmoid", "floor", "ceil", "round", "trunc"),
):
    TABLE[getattr(aten, _op).default] = _unary(_op)
for _op in ("isnan", "isinf"):
    TABLE[getattr(aten, _op).default] = _test(_op)
for _op, _basic in (
    *(("mul", "mul"), ("bitwise_and", "bitwise_and"), ("bitwise_or", "bitwise_or")),
    *(("bitwise_xor", "bitwise_xor"), ("div", "div")),
):
    TABLE[getattr(aten, _op).Tensor] = TABLE[getattr(aten, _op).Scalar] = _binary(_basic)
TABLE[aten.maximum.default], TABLE[aten.minimum.default] = _binary("max"), _binary("min")
for _op in ("eq", "ne", "lt", "le", "gt", "ge"):
    TABLE[getattr(aten, _op).Tensor] = TABLE[getattr(aten, _op).Scalar] = _compare(_op)
for _op in ("and", "or", "xor"):
    TABLE[getattr(aten, f"logical_{_op}").default] = _logical(f"bitwise_{_op}")


@_enter(aten.bitwise_not.default)
def _bitwise_not(t: Translation, x: Value) -> Value:
    return t.builder.logical_not(x) if x.dtype is DType.BOOL else t.builder.bitwise_not(x)


@_enter(aten.logical_not.default)
def _logical_not(t: Translation, x: Value) -> Value:
    return t.builder.logical_not(_truth(t, x))


@_enter(aten.add.Tensor, aten.add.Scalar)
def _add(t: Translation, a: Any, b: Any, alpha: float = 1) -> Value:
    return t.builder.add(t.value(a, t.dtype), _scaled(t, b, alpha))


@_enter(aten.sub.Tensor, aten.sub.Scalar)
def _sub(t: Translation, a: Any, b: Any, alpha: float = 1) -> Value:
    return t.builder.sub(t.value(a, t.dtype), _scaled(t, b, alpha))


def _scaled(t: Translation, x: Any, factor: float) -> Value:
    value = t.value(x, t.dtype)
    return value if factor == 1 else t.builder.mul(value, t.builder.scalar(factor, t.dtype))


@_enter(aten.relu.default)
def _relu(t: Translation, x: Value) -> Value:
    return t.builder.max(x, t.builder.scalar(0, x.dtype))


@_enter(aten.gelu.default)
def _gelu(t: Translation, x: Value, approximate: str = "none") -> Value:
    return t.onnx("Gelu", x, approximate=approximate)[0]


@_enter(aten.clamp.default, aten.clamp.Tensor)
def _clamp(t: Translation, x: Any, least: Any = None, most: Any = None) -> Value:
    value = t.value(x, t.dtype)
    if least is not None:
        value = t.builder.max(value, t.value(least, t.dtype))
    return value if most is None else t.builder.min(value, t.value(most, t.dtype))


@_enter(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar)
def _pow(t: Translation, x: Any, exponent: Any) -> Value:
    base = t.value(x, t.dtype)
    if exponent == 2:
        return t.builder.mul(base, base)
    return t.builder.pow(base, t.value(exponent, t.dtype))


@_enter(aten.where.self)
def _where(t: Translation, condition: Value, a: Any, b: Any) -> Value:
    return t.builder.select(_truth(t, condition), t.value(a, t.dtype), t.value(b, t.dtype))


@_enter(aten._to_copy.default, prims.convert_element_type.default)
def _cast(t: Translation, x: Value, *_: Any, **__: Any) -> Value:
    return _truth(t, x) if t.dtype is DType.BOOL else t.builder.cast(x, t.dtype)


# -- tensors of one number


@_enter(
    *(aten.full.default, aten.full_like.default, aten.scalar_tensor.default),
    *(aten.zeros.default, aten.ones.default, aten.zeros_like.default, aten.ones_like.default),
)
def _full(t: Translation, *arguments: Any, **_: Any) -> Value:
    assert t.node is not None
    name = t.node.target.__name__.split(".")[0]
    number: Any = {"zeros": 0, "ones": 1, "scalar_tensor": arguments[0]}.get(
        name.removesuffix("_like"), arguments[-1]
    )
    return t.builder.broadcast_to(t.value(number, t.dtype), t.shape)


@_enter(aten.arange.start_step)
def _arange(t: Translation, start: Any, end: Any, step: Any = 1, **_: Any) -> Value:
    del end
    if not t.dtype.is_integer:
        raise UnsupportedError("counts in floats")
    counted = t.builder.iota(t.shape, 0, start, step)
    return t.builder.cast(counted, t.dtype)


@_enter(prims.iota.default)
def _iota(t: Translation, _length: Any, *, start: Any, step: Any, **_: Any) -> Value:
    return t.builder.cast(t.builder.iota(t.shape, 0, start, step), t.dtype)


# -- views


@_enter(
    *(aten.view.default, aten._unsafe_view.default, aten.reshape.default),
    *(aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims),
    view=True,
)
def _reshape(t: Translation, x: Value, *_: Any) -> Value:
    return t.builder.reshape(x, t.shape)


@_enter(aten.alias.default, aten.clone.default, aten.detach.default, view=True)
def _same(_t: Translation, x: Value, **_: Any) -> Value:
    return x


@_enter(aten.expand.default, view=True)
def _expand(t: Translation, x: Value, *_: Any, **__: Any) -> Value:
    return t.builder.broadcast_to(x, t.shape)


@_enter(aten.permute.default, view=True)
def _permute(t: Translation, x: Value, order: Sequence[int]) -> Value:
    return t.builder.transpose(x, [axis % x.rank for axis in order])


@_enter(aten.slice.Tensor, view=True)
def _slice(
    t: Translation, x: Value, axis: int = 0, start: Dim = None, end: Dim = None, step: int = 1
) -> Value:
    del end  # the result's shape says it
    return _part(t, x, axis, 0 if start is None else start, t.shape[axis], step)


def _part(t: Translation, x: Value, axis: int, start: Dim, size: Dim, step: int = 1) -> Value:
    assert x.shape is not None
    axis %= x.rank
    if isinstance(start, int) and start < 0:
        start = add(x.shape[axis], start)
    starts: list[Dim] = [0] * x.rank
    steps, sizes = [1] * x.rank, list(x.shape)
    starts[axis], steps[axis], sizes[axis] = start, step, size
    return t.builder.slice(x, starts, sizes, steps)


@_enter(aten.select.int, view=True)
def _select(t: Translation, x: Value, axis: int, index: Dim) -> Value:
    return t.builder.reshape(_part(t, x, axis, index, 1), t.shape)


@_enter(aten.flip.default)
def _flip(t: Translation, x: Value, axes: Sequence[int]) -> Value:
    assert x.shape is not None
    turned = {axis % x.rank for axis in axes}
    starts = [sub(extent, 1) if axis in turned else 0 for axis, extent in enumerate(x.shape)]
    steps = [-1 if axis in turned else 1 for axis in range(x.rank)]
    return t.builder.slice(x, starts, x.shape, steps)


@_enter(aten.split_with_sizes.default, aten.split.Tensor, aten.unbind.int)
def _split(t: Translation, x: Value, *arguments: Any) -> list[Value]:
    unbind = t.node is not None and t.node.target is aten.unbind.int
    axis = (arguments[-1] if len(arguments) > 1 - unbind else 0) % x.rank
    shapes = [t.dims(meta.shape) for meta in t.meta]
    results, start = [], 0
    for shape in shapes:
        size = 1 if unbind else shape[axis]
        results.append(t.builder.reshape(_part(t, x, axis, start, size), shape))
        start = add(start, size)
    return results


@_enter(aten.cat.default)
def _cat(t: Translation, parts: Sequence[Value], axis: int = 0) -> Value:
    # torch leaves out vectors of no elements, whatever the rank of the others
    rank = len(t.shape)
    kept = [t.value(part, t.dtype) for part in parts if part.rank == rank]
    return t.builder.concat(kept, axis)


@_enter(aten.repeat.default)
def _repeat(t: Translation, x: Value, repeats: Sequence[Dim]) -> Value:
    shape = (1,) * (len(repeats) - x.rank) + tuple(x.shape or ())
    spread = [dim for pair in zip(repeats, shape, strict=True) for dim in pair]
    ones = [dim for extent in shape for dim in (1, extent)]
    return t.builder.reshape(t.builder.broadcast_to(t.builder.reshape(x, ones), spread), t.shape)


@_enter(aten.constant_pad_nd.default)
def _pad(t: Translation, x: Value, pads: Sequence[Dim], number: float = 0) -> Value:
    for axis, (before, behind) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        place = x.rank - 1 - axis
        assert x.shape is not None
        filler = t.value(number, x.dtype)
        cut = [max(0, -pad) if isinstance(pad, int) else 0 for pad in (before, behind)]
        if any(cut):
            x = _part(t, x, place, cut[0], sub(x.shape[place], sum(cut)))
        assert x.shape is not None
        shape = list(x.shape)
        parts = [x]
        for pad, where in ((before, 0), (behind, len(parts))):
            if isinstance(pad, int) and pad <= 0:
                continue
            shape[place] = pad
            parts.insert(where if where == 0 else len(parts), t.builder.broadcast_to(filler, shape))
        x = t.builder.concat(parts, place)
    return x


# -- reductions


def _axes(x: Value, axes: Any) -> list[int]:
    listed = [axes] if isinstance(axes, int) else list(axes or ())
    return sorted({axis % x.rank for axis in listed}) if listed else list(range(x.rank))


@_enter(aten.sum.default, aten.sum.dim_IntList)
def _sum(t: Translation, x: Value, axes: Any = None, *_: Any, **__: Any) -> Value:
    x = t.value(x, t.dtype)
    return t.builder.reshape(t.builder.reduce_sum(x, _axes(x, axes)), t.shape)


@_enter(aten.prod.default, aten.prod.dim_int)
def _prod(t: Translation, x: Value, axes: Any = None, *_: Any, **__: Any) -> Value:
    x = t.value(x, t.dtype)
    return t.builder.reshape(t.builder.reduce_prod(x, _axes(x, axes)), t.shape)


@_enter(aten.mean.default, aten.mean.dim)
def _mean(t: Translation, x: Value, axes: Any = None, *_: Any, **__: Any) -> Value:
    x = t.value(x, t.dtype)
    return t.builder.reshape(_mean_of(t, x, _axes(x, axes)), t.shape)


def _mean_of(t: Translation, x: Value, axes: Sequence[int]) -> Value:
    total = t.builder.reduce_sum(x, axes)
    return t.builder.div(total, _count(t, x, axes, 0))


def _count(t: Translation, x: Value, axes: Sequence[int], correction: float) -> Value:
    assert x.shape is not None
    count = product(x.shape[axis] for axis in axes)
    elements = t.builder.cast(t.builder.dims((count,), ()), x.dtype)
    if correction == 0:
        return elements
    left = t.builder.sub(elements, t.builder.scalar(correction, x.dtype))
    return t.builder.max(left, t.builder.scalar(0, x.dtype))


@_enter(aten.amax.default, aten.max.default)
def _amax(t: Translation, x: Value, axes: Any = None, *_: Any) -> Value:
    return t.builder.reshape(t.builder.reduce_max(x, _axes(x, axes)), t.shape)


@_enter(aten.amin.default, aten.min.default)
def _amin(t: Translation, x: Value, axes: Any = None, *_: Any) -> Value:
    return t.builder.reshape(t.builder.reduce_min(x, _axes(x, axes)), t.shape)


@_enter(aten.any.default, aten.any.dim, aten.any.dims)
def _any(t: Translation, x: Value, axes: Any = None, *_: Any) -> Value:
    found = t.builder.reduce_max(_truth(t, x), _axes(x, axes))
    return t.builder.reshape(found, t.shape)


@_enter(aten.all.default, aten.all.dim, aten.all.dims)
def _all(t: Translation, x: Value, axes: Any = None, *_: Any) -> Value:
    found = t.builder.reduce_min(_truth(t, x), _axes(x, axes))
    return t.builder.reshape(found, t.shape)


def _variance(t: Translation, x: Value, axes: Any, correction: float | None) -> tuple[Value, Value]:
    correction = 1 if correction is None else correction
    folded = _axes(x, axes)
    mean = _mean_of(t, x, folded)
    off = t.builder.sub(x, mean)
    total = t.builder.reduce_sum(t.builder.mul(off, off), folded)
    return t.builder.div(total, _count(t, x, folded, correction)), mean


@_enter(aten.var.correction)
def _var(
    t: Translation,
    x: Value,
    axes: Any = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Value:
    del keepdim  # the result's shape says it
    return t.builder.reshape(_variance(t, x, axes, correction)[0], t.shape)


@_enter(aten.var_mean.correction)
def _var_mean(
    t: Translation,
    x: Value,
    axes: Any = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> list[Value]:
    del keepdim
    return [t.builder.reshape(v, t.shape) for v in _variance(t, x, axes, correction)]


@_enter(aten.native_layer_norm.default)
def _layer_norm(
    t: Translation, x: Value, sizes: Sequence[Dim], scale: Any, shift: Any, epsilon: float
) -> list[Value]:
    b, axes = t.builder, list(range(x.rank - len(sizes), x.rank))
    variance, mean = _variance(t, x, axes, 0)
    root = b.rsqrt(b.add(variance, b.scalar(epsilon, x.dtype)))
    y = b.mul(b.sub(x, mean), root)
    y = y if scale is None else b.mul(y, scale)
    return [y if shift is None else b.add(y, shift), mean, root]


@_enter(aten._softmax.default)
def _softmax(t: Translation, x: Value, axis: int, _half: bool) -> Value:
    return t.onnx("Softmax", x, axis=axis % x.rank)[0]


@_enter(aten._log_softmax.default)
def _log_softmax(t: Translation, x: Value, axis: int, _half: bool) -> Value:
    return t.onnx("LogSoftmax", x, axis=axis % x.rank)[0]


# -- products


@_enter(aten.mm.default, aten.bmm.default)
def _matmul(t: Translation, a: Value, b: Value) -> Value:
    return t.builder.matmul(a, b)


@_enter(aten.addmm.default)
def _addmm(
    t: Translation, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1
) -> Value:
    return t.builder.add(_scaled(t, t.builder.matmul(a, b), alpha), _scaled(t, bias, beta))


@_enter(aten.convolution.default)
def _convolution(
    t: Translation,
    x: Value,
    weight: Value,
    bias: Value | None,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    transposed: bool,
    more: Sequence[int],
    groups: int,
) -> Value:
    if transposed or any(more):
        raise UnsupportedError("a transposed convolution")
    return t.onnx(
        "Conv",
        x,
        weight,
        bias,
        strides=list(strides),
        pads=[*pads, *pads],
        dilations=list(dilations),
        group=groups,
        kernel_shape=list((weight.shape or ())[2:]),
    )[0]


# -- reading by index


@_enter(aten.embedding.default)
def _embedding(t: Translation, weight: Value, index: Value, *_: Any) -> Value:
    return t.onnx("Gather", weight, index, axis=0)[0]


@_enter(aten.index_select.default)
def _index_select(t: Translation, x: Value, axis: int, index: Value) -> Value:
    return t.onnx("Gather", x, index, axis=axis)[0]


@_enter(aten.gather.default)
def _gather(t: Translation, x: Value, axis: int, index: Value, **_: Any) -> Value:
    assert x.shape is not None and index.shape is not None
    if x.shape[:axis] + x.shape[axis + 1 :] != index.shape[:axis] + index.shape[axis + 1 :]:
        raise UnsupportedError("indices of a part of the rows")
    return t.onnx("GatherElements", x, index, axis=axis)[0]


@_enter(aten.index.Tensor)
def _index(t: Translation, x: Value, indices: Sequence[Value | None]) -> Value:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype is DType.BOOL:
        raise UnsupportedError("several indices, or a mask")
    ((axis, index),) = given
    return t.onnx("Gather", x, index, axis=axis)[0]


@_enter(aten.cumsum.default)
def _cumsum(t: Translation, x: Value, axis: int, **_: Any) -> Value:
    return t.onnx("CumSum", t.value(x, t.dtype), t.builder.scalar(axis, DType.INT64))[0]


VIEWS = tuple(_VIEWS)
