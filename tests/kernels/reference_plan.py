"""The slow, honest meaning of a ModelPlan: every kernel interpreted with numpy.

Accesses are strided views over flat buffers and are bounds-checked element by element, buffers start
full of garbage, so a wrong stride, a missing store or a step out of order shows as a wrong answer.
Fallbacks can be forced, to test them without a kernel that does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dvm_graph.ir import DType
from dvm_graph.kernels.plan import (
    NO_SLOT,
    WINDOW_SIZES,
    Access,
    DimsStep,
    KernelCall,
    KernelPlan,
    LaunchStep,
    ModelPlan,
    PlanNode,
    Storage,
    VendorStep,
)
from dvm_graph.symbolic import evaluate

Array = np.ndarray[Any, Any]
RunVendor = Callable[[VendorStep, list[Array]], list[Array]]


@dataclass
class _Run:
    plan: ModelPlan
    buffers: dict[int, Array] = field(default_factory=dict)
    symbols: dict[int, int] = field(default_factory=dict)
    slots: list[int] = field(default_factory=list)

    def at(self, slot: int) -> int:
        return 0 if slot == NO_SLOT else self.slots[slot]

    def refresh(self) -> None:
        """Evaluates all dims for the symbols bound so far."""
        values = [self.symbols.get(i, 1) for i in range(len(self.plan.dims.symbols))]
        self.slots = evaluate(self.plan.dims, values)

    def bind(self, value: int, shape: tuple[int, ...]) -> None:
        for binding in self.plan.bindings:
            if binding.value == value:
                extent = shape[binding.axis] - binding.shift
                assert extent % binding.scale == 0
                self.symbols[binding.symbol] = extent // binding.scale
        self.refresh()
        expected = tuple(self.at(slot) for slot in self.plan.values[value].shape)
        assert expected == shape, (self.plan.values[value].name, expected, shape)


def run_plan(
    plan: ModelPlan,
    feeds: list[Array],
    run_vendor: RunVendor | None = None,
    force_fallback: bool = False,
) -> list[Array]:
    """The outputs of a plan for some inputs, in the order of the model."""
    run = _Run(plan)
    for value, array in zip(plan.inputs, feeds, strict=True):
        for binding in plan.bindings:
            if binding.value == value:
                run.symbols[binding.symbol] = (
                    array.shape[binding.axis] - binding.shift
                ) // binding.scale
    for value, array in zip(plan.inputs, feeds, strict=True):
        run.bind(value, array.shape)
        run.buffers[value] = np.ascontiguousarray(array).reshape(-1)
    for step in plan.steps:
        if isinstance(step, LaunchStep):
            for stage in step.stages:
                for call in stage:
                    _call(run, call, force_fallback)
        elif isinstance(step, DimsStep):
            run.buffers[step.value] = np.array([run.at(s) for s in step.slots], np.int64)
        else:
            assert run_vendor is not None
            arrays = [_shaped(run, value) for value in step.inputs]
            for value, array in zip(step.outputs, run_vendor(step, arrays), strict=True):
                run.bind(value, array.shape)
                run.buffers[value] = np.ascontiguousarray(array).reshape(-1)
    return [_shaped(run, value) for value in plan.outputs]


def _shape(run: _Run, value: int) -> tuple[int, ...]:
    return tuple(run.at(slot) for slot in run.plan.values[value].shape)


def _shaped(run: _Run, value: int) -> Array:
    return _buffer(run, value).reshape(_shape(run, value))


def _buffer(run: _Run, value: int) -> Array:
    if value not in run.buffers:
        described = run.plan.values[value]
        if described.constant is not None:
            assert described.constant.data is not None
            run.buffers[value] = np.asarray(described.constant.data).reshape(-1)
        else:
            assert described.storage in (Storage.ARENA, Storage.OUTPUT), described
            size = math.prod(_shape(run, value))
            garbage = np.full(size, 113, np.uint8).astype(described.dtype.numpy)
            run.buffers[value] = garbage
    return run.buffers[value]


def _call(run: _Run, call: KernelCall, force_fallback: bool) -> None:
    valid = call.guard == NO_SLOT or run.at(call.guard) != 0
    if valid and not (force_fallback and call.fallback):
        _Kernel(run, call.plan).execute()
        return
    assert call.fallback
    for other in call.fallback:
        _call(run, other, force_fallback)


class _Kernel:
    def __init__(self, run: _Run, plan: KernelPlan) -> None:
        self.run, self.plan = run, plan
        self.extents = [run.at(slot) for slot in plan.extents]
        self.results: list[Array] = []

    def execute(self) -> None:
        assert len(self.extents) <= 12
        assert any(node.op == "store" for node in self.plan.nodes)
        for node in self.plan.nodes:
            with np.errstate(all="ignore"):
                result = np.asarray(self.evaluate(node))
            if node.op != "store":
                for axis, extent in enumerate(result.shape):
                    varies = node.axes >> axis & 1
                    assert extent == (self.extents[axis] if varies else 1), (self.plan.name, node)
                assert DType(result.dtype.name) is node.dtype, (node, result.dtype)
            self.results.append(result)

    def shape(self, axes: int) -> tuple[int, ...]:
        return tuple(e if axes >> axis & 1 else 1 for axis, e in enumerate(self.extents))

    def addresses(self, access: Access, axes: int) -> Array:
        """Element index for every point of the node's axes."""
        shape = self.shape(axes)
        index = np.full(shape, self.run.at(access.offset), np.int64)
        for axis, slot in enumerate(access.strides):
            if axes >> axis & 1:
                reach = np.arange(shape[axis]) * self.run.at(slot)
                index += reach.reshape([-1 if a == axis else 1 for a in range(len(shape))])
        return index

    def checked(self, index: Array, size: int) -> Array:
        if index.size:
            assert index.min() >= 0 and index.max() < size, (self.plan.name, "out of bounds")
        return index

    def evaluate(self, node: PlanNode) -> Any:
        match node.op:
            case "load":
                return self.load(node)
            case "store":
                return self.store(node)
            case "gather":
                return self.gather(node)
            case "pool_max" | "pool_sum" | "depthwise" | "patches":
                return self.window(node)
            case "fill":
                number = node.scalar if node.dtype.is_float else node.integer
                return np.full(self.shape(0), number).astype(node.dtype.numpy)
            case "iota":
                access = Access(-1, node.strides, node.offset)
                return self.addresses(access, node.axes)
            case "matmul":
                return self.matmul(node)
        inputs = [self.results[i] for i in node.inputs]
        for operand in inputs:
            for axis in range(len(self.extents)):
                allowed = (node.axes | node.reduce_axes) >> axis & 1
                assert allowed or operand.shape[axis] == 1, (self.plan.name, node)
        if node.op.startswith("reduce_"):
            full = np.broadcast_to(inputs[0], self.shape(node.axes | node.reduce_axes))
            axes = tuple(a for a in range(len(self.extents)) if node.reduce_axes >> a & 1)
            return _REDUCTIONS[node.op](full, axes)
        result = self.compute(node, inputs)
        return np.broadcast_to(result, self.shape(node.axes))

    def compute(self, node: PlanNode, inputs: list[Array]) -> Array:
        if node.op == "narrow":
            assert node.narrow_to is not None
            return inputs[0].astype(node.narrow_to.numpy).astype(node.dtype.numpy)
        if node.op == "lookup":
            table = _buffer(self.run, self.plan.accesses[node.weights].value)
            return table[inputs[0].astype(np.uint8)].astype(node.dtype.numpy)
        if node.op == "cast":
            if node.dtype is DType.BOOL:
                return inputs[0] != 0
            return inputs[0].astype(node.dtype.numpy)
        if node.op == "check_index":
            limit = self.run.at(node.limit)
            return _wrapped(inputs[0], limit)
        return np.asarray(_MAPS[node.op](*inputs))

    def load(self, node: PlanNode) -> Array:
        access = self.plan.accesses[node.access]
        if access.packed_panels:
            return self.load_panels(node, access)
        buffer = _buffer(self.run, access.value)
        index = self.checked(self.addresses(access, node.axes), buffer.size)
        return buffer[index].astype(node.dtype.numpy)

    def load_panels(self, node: PlanNode, access: Access) -> Array:
        """Panels as the dense constant [batch, k, n] they stand for."""
        panels = self.run.plan.values[access.value].panels
        assert panels is not None
        batch = np.arange(panels.batch)[:, None, None] * panels.strides[0]
        k = np.arange(panels.k)[None, :, None] * panels.strides[1]
        n = np.arange(panels.n)[None, None, :] * panels.strides[2]
        source = _buffer(self.run, panels.source)
        dense = source[self.checked(panels.offset + batch + k + n, source.size)].reshape(-1)
        slots = list(access.strides)
        step_k, step_n = self.run.plan.dims.slot(panels.n), self.run.plan.dims.slot(1)
        self.run.refresh()
        n_axis, k_axis = self.columns_and_steps(node)
        slots[k_axis], slots[n_axis] = step_k, step_n
        index = self.addresses(Access(access.value, tuple(slots), access.offset), node.axes)
        return dense[self.checked(index, dense.size)].astype(node.dtype.numpy)

    def store(self, node: PlanNode) -> Array:
        access = self.plan.accesses[node.access]
        buffer = _buffer(self.run, access.value)
        assert self.run.plan.values[access.value].storage in (Storage.ARENA, Storage.OUTPUT)
        if not buffer.flags.writeable:
            raise AssertionError(f"{self.plan.name} writes to a constant")
        value = self.results[node.inputs[0]]
        assert DType(value.dtype.name) is node.dtype, node
        assert all(node.axes >> a & 1 or e == 1 for a, e in enumerate(value.shape)), node
        assert not self.plan.nodes[node.inputs[0]].axes & ~node.axes, (self.plan.name, node)
        index = self.checked(self.addresses(access, node.axes), buffer.size)
        buffer[index] = np.broadcast_to(value, index.shape).astype(buffer.dtype)
        return value

    def gather(self, node: PlanNode) -> Array:
        access = self.plan.accesses[node.access]
        buffer = _buffer(self.run, access.value)
        picked = _wrapped(self.results[node.inputs[0]], self.run.at(node.limit))
        index = self.addresses(access, node.axes) + picked * self.run.at(node.offset)
        return buffer[self.checked(index, buffer.size)].astype(node.dtype.numpy)

    def window(self, node: PlanNode) -> Array:
        """Tap by tap, at the points of the node's axes."""
        sizes = {n: self.run.at(s) for n, s in zip(WINDOW_SIZES, node.window, strict=True)}
        numbers = self.addresses(Access(-1, node.strides, node.offset), node.axes)
        images, slices, rows, columns = (
            sizes[name] for name in ("images", "depth", "height", "width")
        )
        number, column = np.divmod(numbers, sizes["out_width"])
        number, row = np.divmod(number, sizes["out_height"])
        image, deep = np.divmod(number, sizes["out_depth"])
        assert not image.size or (image.min() >= 0 and image.max() < images)
        start = self.addresses(self.plan.accesses[node.access], node.axes)
        source = _buffer(self.run, self.plan.accesses[node.access].value)
        result = np.full(start.shape, -np.inf if node.op == "pool_max" else 0, node.dtype.numpy)
        channels = sizes["channels"]
        plane = sizes["kernel_height"] * sizes["kernel_width"]
        for tap in range(sizes["kernel_depth"] * plane):
            tap_z, (tap_y, tap_x) = tap // plane, divmod(tap % plane, sizes["kernel_width"])
            z = deep * sizes["stride_depth"] - sizes["pad_front"] + tap_z * sizes["dilation_depth"]
            y = row * sizes["stride_height"] - sizes["pad_top"] + tap_y * sizes["dilation_height"]
            x = column * sizes["stride_width"] - sizes["pad_left"] + tap_x * sizes["dilation_width"]
            inside = (y >= 0) & (y < rows) & (x >= 0) & (x < columns) & (z >= 0) & (z < slices)
            at = start + (((image * slices + z) * rows + y) * columns + x) * sizes["pixel"]
            if node.op == "patches":
                inner = self.plan.inner_k_axis
                axis = inner if inner >= 0 and node.axes >> inner & 1 else self.plan.k_axis
                element = np.arange(self.extents[axis]) - tap * channels
                shape = [1] * start.ndim
                shape[axis] = -1
                element = element.reshape(shape)
                inside = inside & (element >= 0) & (element < channels)
                at = at + element
            counts = inside | (sizes["outside"] != 0)  # of which taps an element is added
            for channel in range(channels if node.op == "depthwise" else 1):
                place = at + channel
                self.checked(place[np.broadcast_to(inside, at.shape)], source.size)
                value = source[np.where(inside, place, 0)] if source.size else np.zeros(at.shape)
                value = np.where(inside, value, sizes["outside"])
                if node.op == "depthwise":
                    access = self.plan.accesses[node.weights]
                    weights = _buffer(self.run, access.value)
                    first = (tap * channels + channel) * sizes["weights"]
                    index = self.addresses(access, node.axes) + first
                    value = value * weights[self.checked(index, weights.size)]
                if node.op == "pool_max":
                    result = np.where(inside, np.maximum(result, value), result)
                else:
                    result = np.where(counts, result + value, result)
        return result.astype(node.dtype.numpy)

    def columns_and_steps(self, node: PlanNode) -> tuple[int, int]:
        """The n and k axes of the product that a B operand belongs to."""
        inner_k = self.plan.inner_k_axis
        if inner_k >= 0 and node.axes >> inner_k & 1:
            return self.plan.k_axis, inner_k
        return self.plan.n_axis, self.plan.k_axis

    def matmul(self, node: PlanNode) -> Array:
        m = self.plan.m_axis
        n, k = self.columns_and_steps(self.plan.nodes[node.inputs[1]])
        assert node.axes >> n & 1 and not node.axes >> k & 1
        a, b = (self.results[i] for i in node.inputs)
        assert a.shape[n] == 1 and b.shape[m] == 1
        rank = len(self.extents)
        batch = [axis for axis in range(rank) if axis not in (m, n, k)]
        shape_k = self.extents[k]
        a = np.broadcast_to(a, [shape_k if x == k else e for x, e in enumerate(a.shape)])
        b = np.broadcast_to(b, [shape_k if x == k else e for x, e in enumerate(b.shape)])
        if node.narrow_to is not None:
            a, b = (x.astype(node.narrow_to.numpy).astype(node.dtype.numpy) for x in (a, b))
        left = a.transpose(*batch, m, k, n)[..., 0]
        right = b.transpose(*batch, k, n, m)[..., 0]
        product = np.matmul(left, right)[..., None]
        return product.transpose(np.argsort([*batch, m, n, k]))


def _wrapped(index: Array, limit: int) -> Array:
    wrapped = np.where(index < 0, index + limit, index)
    if wrapped.size and (wrapped.min() < 0 or wrapped.max() >= limit):
        raise IndexError(f"index outside [0, {limit})")
    return wrapped


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    safe = np.where(b == 0, 1, b)
    quotient = np.abs(a) // np.abs(safe) * np.sign(a) * np.sign(safe)
    return np.where(b == 0, 0, quotient).astype(a.dtype)


def _bits(logical: Any, bitwise: Any) -> Callable[[Array, Array], Array]:
    return lambda a, b: logical(a, b) if a.dtype == bool else bitwise(a, b)


def _same_type(function: Any) -> Callable[..., Array]:
    return lambda x: np.asarray(function(x)).astype(x.dtype)


_MAPS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "neg": np.negative, "sign": np.sign, "sqrt": np.sqrt,
    "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype), "exp": np.exp, "log": np.log,
    "reciprocal": lambda x: (1 / x).astype(x.dtype), "log1p": np.log1p, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": _erf, "tanh": np.tanh,
    "sigmoid": lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype), "floor": _same_type(np.floor),
    "ceil": _same_type(np.ceil), "round": _same_type(np.rint), "trunc": _same_type(np.trunc),
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "logical_not": np.logical_not, "bitwise_not": np.bitwise_not, "add": np.add,
    "sub": np.subtract, "mul": np.multiply, "div": _divide, "mod": np.mod, "fmod": np.fmod,
    "pow": np.power, "min": np.minimum, "max": np.maximum, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "bitwise_and": _bits(np.logical_and, np.bitwise_and),
    "bitwise_or": _bits(np.logical_or, np.bitwise_or),
    "bitwise_xor": _bits(np.logical_xor, np.bitwise_xor), "shift_left": np.left_shift,
    "shift_right": np.right_shift, "select": np.where,
}  # fmt: skip


def _reduction(function: Any, empty: Callable[[np.dtype[Any]], Any]) -> Callable[..., Array]:
    def reduce(x: Array, axes: tuple[int, ...]) -> Array:
        return function(x, axis=axes, keepdims=True, initial=empty(x.dtype)).astype(x.dtype)

    return reduce


def _lowest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return False
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return True
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


_REDUCTIONS = {
    "reduce_sum": _reduction(np.sum, lambda d: 0),
    "reduce_prod": _reduction(np.prod, lambda d: 1),
    "reduce_max": _reduction(np.max, _lowest),
    "reduce_min": _reduction(np.min, _highest),
}
