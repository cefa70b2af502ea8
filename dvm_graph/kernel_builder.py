"""Kernels by hand: a Python function over a builder becomes a fused kernel for any shape.

    @dvm_graph.kernel(kind="vector")
    def scaled(k):
        x = k.load([-1, "width"], "float32")
        k.store(k.mul(x, k.div(1.0, k.sum(x, axes=[1], keepdims=True))))

    scaled(array)

The function runs once, where it stands: each call adds a basic operator (`ir/operators.py`) whose result has its
shape and dtype at once, so that what does not fit is reported with the line that asks for it. What it builds is
compiled as any model's operators are; `kind` says what it must become.
"""

from __future__ import annotations

import functools
import itertools
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dvm_graph.errors import DvmError, InputError, ModelError, UnsupportedError, border
from dvm_graph.ir import DType, Graph, Value
from dvm_graph.kernels.text import print_plan
from dvm_graph.options import DEFAULTS, Options
from dvm_graph.pipeline import Compiled, compile_graph
from dvm_graph.process import load_compiler
from dvm_graph.report import Report, make_report
from dvm_graph.runtime import Program
from dvm_graph.runtime.assemble import assemble
from dvm_graph.symbolic import Builder, Facts, Meter, Symbols
from dvm_graph.symbolic.builder_methods import OperatorMethods
from dvm_graph.symbolic.polynomial import Dim

Number: TypeAlias = float | int | bool
Operand: TypeAlias = Value | Number
"""What was loaded or computed, or a number of the dtype of what it meets."""

KINDS = ("split", "vector", "cube", "mix", "parallel", "sequence")
"""What a function may have to become:

    split             kernels as the compiler cuts them
    vector, cube, mix one kernel of that kind
    parallel          kernels that run side by side, in one launch
    sequence          kernels in one launch, stage behind stage
"""

_PACKAGE = str(Path(__file__).parent)


class KernelBuilder(OperatorMethods):
    """What the function is called with: a method for each basic operator, and those below.

    Operands are values of this builder, or Python numbers, of which at least one operand is none. Shapes broadcast
    as numpy's do; all operands of an operator have one dtype.
    """

    def __init__(self, name: str, options: Options) -> None:
        self.graph = Graph(name)
        self.facts = Facts(Symbols(), Meter(options))
        self.options = options
        self._builder = Builder(self.graph, self.facts, options)

    def load(self, shape: Sequence[Dim | str], dtype: DTypeLike, name: str = "") -> Value:
        """An input: the next argument of the kernel.

        Args:
            shape: an extent for each axis: a number; -1, any; or a name, the same wherever it stands.
            dtype: of numpy or ml_dtypes, or its name.
            name: in errors, reports and listings.

        Raises:
            InputError: an extent is negative or no number, or the dtype is none that kernels know.
        """
        name = name or f"input{len(self.graph.inputs)}"
        if any(value.name == name for value in self.graph.inputs):
            raise InputError(f"{_line()}: there is an input {name!r} already")
        dims = tuple(self._dim(extent, f"{name}_dim{axis}") for axis, extent in enumerate(shape))
        value = Value(self.graph.unique_name(name), _dtype(dtype), dims)
        self.graph.inputs.append(value)
        return value

    def scalar(self, dtype: DTypeLike, name: str = "") -> Value:
        """An input of rank 0."""
        return self.load((), dtype, name)

    def store(self, x: Value, name: str = "") -> None:
        """An output: the next result of the kernel."""
        self.graph.outputs.append(self._operand(x))
        names = (*self.graph.output_names, name or f"output{len(self.graph.output_names)}")
        if len(set(names)) < len(names):
            raise InputError(f"{_line()}: there is an output {name!r} already")
        self.graph.output_names = names

    def op(self, name: str, *operands: Operand, **attrs: Any) -> Value:
        """The result of a basic operator by name.

        Raises:
            ShapeError: shapes contradict the operator or each other; the message names the line.
            InputError: operands of wrong number, dtypes or kinds.
        """
        line = _line()
        values = [value for value in operands if isinstance(value, Value)]
        if not values and operands:
            raise InputError(f"{line}: {name} of numbers alone: compute it in Python")
        dtype = values[-1].dtype if values else DType.INT64
        self._builder.inside = (line,), {}, ""
        given = [
            self._builder.scalar(operand, dtype)
            if isinstance(operand, Number)
            else self._operand(operand)
            for operand in operands
        ]
        try:
            return self._builder.op(name, *given, **attrs)
        except ModelError as error:
            raise InputError(str(error)) from error

    def cast(self, x: Value, dtype: DTypeLike | DType) -> Value:
        return super().cast(self._operand(x), _dtype(dtype))

    def sum(self, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        return self._reduced(self.reduce_sum, x, axes, keepdims)

    def prod(self, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        return self._reduced(self.reduce_prod, x, axes, keepdims)

    def amax(self, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        """The greatest elements along axes; `max` is that of two operands."""
        return self._reduced(self.reduce_max, x, axes, keepdims)

    def amin(self, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        return self._reduced(self.reduce_min, x, axes, keepdims)

    def _reduced(
        self,
        reduce: Callable[[Value, Sequence[int]], Value],
        x: Value,
        axes: Sequence[int],
        keepdims: bool,
    ) -> Value:
        rank = self._operand(x).rank
        if not all(-rank <= axis < rank for axis in axes):
            raise InputError(f"{_line()}: axes {list(axes)} of a value of rank {rank}")
        result = reduce(x, axes)
        if keepdims or result.shape is None:
            return result
        dropped = {axis % rank for axis in axes}
        return self.reshape(result, [d for i, d in enumerate(result.shape) if i not in dropped])

    def _operand(self, x: Value) -> Value:
        known = isinstance(x, Value) and (
            x.producer in self.graph if x.producer else x.data is not None or x in self.graph.inputs
        )
        if not known:
            raise InputError(f"{_line()}: {x!r:.50} is no value of this kernel")
        return x

    def _dim(self, extent: Dim | str, name: str) -> Dim:
        if isinstance(extent, str) and extent.isidentifier():
            return self.facts.symbols.get(extent)
        if isinstance(extent, int) and extent >= -1:
            return self.facts.symbols.fresh(name) if extent == -1 else extent
        raise InputError(
            f"{_line()}: an extent is a number, -1 for any, or a name: not {extent!r:.50}"
        )


class Kernel:
    """A compiled kernel: call it with an array for each `load`, in order."""

    def __init__(
        self, function: Callable[[KernelBuilder], None], kind: str, options: Options
    ) -> None:
        functools.update_wrapper(self, function)
        self.kind = kind
        self._name = function.__name__
        load_compiler()
        builder = KernelBuilder(self._name, options)
        _build(function, builder)
        if not builder.graph.outputs:
            raise InputError(f"{_place(function.__code__)}: {self._name} stores nothing")
        self._inputs = tuple(value.name for value in builder.graph.inputs)
        with border("compile the kernel"):
            self._compiled: Compiled = compile_graph(builder.graph, builder.facts, options)
            self._check_kind()
            self._program: Program = assemble(self._compiled.plan, options, release_packed=True)

    def __repr__(self) -> str:
        return f"<dvm_graph.Kernel {self._name}: {self.kind}>"

    def __call__(self, *arrays: ArrayLike) -> NDArray[Any] | tuple[NDArray[Any], ...]:
        """Runs the kernel at the shapes of its arguments; one array, or one for each `store`.

        Raises:
            InputError: arguments of wrong number, dtype or rank.
            ShapeError: extents that contradict each other.
        """
        results = self._program.run(self._feeds(arrays), None)
        return results[0] if len(results) == 1 else tuple(results)

    def dump(self) -> str:
        """The kernel plan: what is compiled at run time, for the shapes of a call."""
        return print_plan(self._compiled.plan)

    def das(self, *arrays: ArrayLike) -> str:
        """The bytecode for the shapes of these arguments, disassembled."""
        return self._program.disassemble(self._feeds(arrays))

    def report(self) -> Report:
        """What was fused and why; lines of the function stand for ONNX nodes."""
        return make_report(self._compiled)

    def _feeds(self, arrays: Sequence[ArrayLike]) -> dict[str, ArrayLike]:
        if len(arrays) != len(self._inputs):
            raise InputError(
                f"{self._name} takes {len(self._inputs)} arguments ({', '.join(self._inputs)}), not {len(arrays)}"
            )
        return dict(zip(self._inputs, arrays, strict=True))

    def _check_kind(self) -> None:
        if self.kind == "split":
            return
        report = self.report()
        kernels = report.subgraphs
        if self.kind in ("parallel", "sequence"):
            stages = {subgraph.stage for subgraph in kernels}
            fits = report.launches == 1 and (self.kind == "sequence" or len(stages) == 1)
        else:
            fits = len(kernels) == 1 and kernels[0].kind.value == self.kind
        if fits:
            return
        parts = "; ".join(f"{s.name} ({s.kind.value}): {', '.join(s.onnx_nodes)}" for s in kernels)
        reasons = [report.why(a.name, b.name) for a, b in itertools.pairwise(kernels)]
        raise UnsupportedError(
            f"{self._name} is no {self.kind} kernel, but {report.launches} launches of {len(kernels)} kernels: "
            f"{'. '.join((parts, *reasons))}"
        )


@overload
def kernel(function: Callable[[KernelBuilder], None], /) -> Kernel: ...
@overload
def kernel(
    *, kind: str = ..., options: Options | None = ..., **overrides: Any
) -> Callable[[Callable[[KernelBuilder], None]], Kernel]: ...
def kernel(
    function: Callable[[KernelBuilder], None] | None = None,
    /,
    *,
    kind: str = "split",
    options: Options | None = None,
    **overrides: Any,
) -> Kernel | Callable[[Callable[[KernelBuilder], None]], Kernel]:
    """Makes a kernel of a function over a `KernelBuilder`.

    Args:
        function: builds the kernel; without it, the result is a decorator.
        kind: one of `KINDS`: what it has to become.
        options: see `Options`.
        **overrides: single fields of it (`cores=1`).

    Raises:
        InputError: the function builds what makes no sense; the message names its line.
        ShapeError: shapes that do not fit, with the line.
        UnsupportedError: it does not become what `kind` asks for; the message says what it becomes, and why.
    """
    if kind not in KINDS:
        raise InputError(f"no kind of kernels {kind!r}; kinds are {', '.join(KINDS)}")
    chosen = (options or DEFAULTS).changed(overrides)
    if function is None:
        return lambda decorated: Kernel(decorated, kind, chosen)
    return Kernel(function, kind, chosen)


def _build(function: Callable[[KernelBuilder], None], builder: KernelBuilder) -> None:
    """Errors of the function's own pass; those of the builder's methods say which line called them."""
    try:
        function(builder)
    except DvmError:
        raise
    except Exception as error:  # whatever the user's function raises
        frames = traceback.extract_tb(error.__traceback__)
        if not frames[-1].filename.startswith(_PACKAGE):
            raise
        caller = next(f for f in reversed(frames) if not f.filename.startswith(_PACKAGE))
        line = f"{Path(caller.filename).name}:{caller.lineno}"
        raise InputError(f"{line}: {type(error).__name__}: {error}") from error


def _dtype(dtype: DTypeLike | DType) -> DType:
    if isinstance(dtype, DType):
        return dtype
    try:
        return DType.of(np.dtype(dtype))
    except (TypeError, ValueError) as error:
        raise InputError(f"{_line()}: kernels know no dtype {dtype!r:.50}") from error


def _line() -> str:
    """Where the code stands that called the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _place(code: CodeType) -> str:
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
