"""How a program is made: what the core's builder is told, as plain data.

In: a `Recipe`, the contents of constants and the vendor partitions. Out: a `Program`. A plan gives a recipe
(`assemble`), a saved model keeps one: there is one way to make a program, and nothing is written down twice.

Invariant: a recipe holds numbers, text and sequences of these, and no contents of constants. It does not depend on
the device, nor on the options but for those that the plan was made with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dvm_graph import _core
from dvm_graph.errors import CompileError, InputError, OutOfMemoryError
from dvm_graph.npu.machine import this_machine
from dvm_graph.npu.spec import find_spec
from dvm_graph.options import Options
from dvm_graph.process import MappedFile, load_onnxruntime
from dvm_graph.runtime.program import Port, Program
from dvm_graph.runtime.vendor_model import VendorThreads

if TYPE_CHECKING:
    from dvm_graph.runtime.vendor import VendorPartition

Call: TypeAlias = tuple[str, Sequence[Any]]
"""A method of the builder and its arguments. A partition is its number, as is a body of control flow."""

METHODS = frozenset(
    (
        *("set_dims", "add_value", "add_kernel", "add_call", "take_apart", "add_launch"),
        *("add_vendor", "add_control", "add_host", "add_dims_write", "add_binding", "add_check"),
        "set_ports",
    )
)
"""Those that a recipe may call."""
_STEPS_HERE = frozenset({"add_launch", "add_control", "add_host"})
"""Steps besides those of the vendor library that take long enough to wait for."""


@dataclass(frozen=True, slots=True)
class Recipe:
    calls: Sequence[Call]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


Partitions: TypeAlias = "Callable[[VendorThreads], Sequence[VendorPartition]]"
"""The vendor partitions of a recipe, by number."""
Fill: TypeAlias = Callable[[_core.ModelBuilder], Sequence[MappedFile]]
"""Gives constants their contents, and says which files those are pages of."""


def make_program(
    recipe: Recipe,
    options: Options,
    partitions: Partitions,
    fill: Fill,
    bodies: Sequence[Program] = (),
    *,
    is_body: bool = False,
) -> Program:
    """The program on the device that the options ask for; `bodies` are those of its control flow, by number, and
    `is_body` says that it is one.

    Raises:
        InputError: the options ask for an instruction-set level that the machine lacks, or for products
            of bf16, which its CPU has no instructions for.
        OutOfMemoryError: the contents, or the local memories asked for, do not fit memory.
        CompileError: the recipe is malformed.
    """
    builder = _builder(options)
    cores = _core.available_cores() if options.device else builder.cores
    alone = not is_body and not any(method in _STEPS_HERE for method, _ in recipe.calls)
    vendor = _vendor(recipe, partitions, VendorThreads(cores, alone and options.spin))
    for method, arguments in recipe.calls:
        if method == "add_vendor":
            name, number, inputs, outputs = arguments
            model = vendor[number].model
            _require((len(model.inputs), len(model.results)) == (len(inputs), len(outputs)), name)
            builder.add_vendor(name, vendor[number].run, inputs, outputs)
        elif method == "add_control":
            name, inside, *about = arguments
            programs = [(bodies[number].core, dims) for number, dims in inside]
            builder.add_control(name, programs, *about)
        else:
            if method == "set_ports":
                for ports, values in zip((recipe.inputs, recipe.outputs), arguments, strict=True):
                    _require(len(ports) == len(values), "the caller")
            getattr(builder, method)(*arguments)
    _require(sum(method == "set_ports" for method, _ in recipe.calls) == 1, "the caller")
    _require(len({port.name for port in recipe.inputs}) == len(recipe.inputs), "the caller")
    files = fill(builder)
    return Program(builder.finish(), recipe.inputs, recipe.outputs, files, vendor, bodies)


def _require(as_many: bool, user: str) -> None:
    if not as_many:
        raise CompileError(f"malformed recipe: {user} reads or writes another number of values")


def _vendor(
    recipe: Recipe, partitions: Partitions, threads: VendorThreads
) -> Sequence[VendorPartition]:
    if not any(method == "add_vendor" for method, _ in recipe.calls):
        return ()
    load_onnxruntime()  # only models that need the vendor library pay for loading it
    return partitions(threads)


CORES_PER_CPU = 8
"""More of them only take turns."""


def _builder(options: Options) -> _core.ModelBuilder:
    if options.cores is not None and options.cores > CORES_PER_CPU * _core.available_cores():
        cpus = _core.available_cores()
        raise InputError(
            f"option cores is {options.cores}, but this process may use {cpus} CPUs: "
            f"at most {CORES_PER_CPU * cpus}, {CORES_PER_CPU} for each"
        )
    level = _level(options.simd)
    if options.precision in ("bf16", "stored") and level not in _core.bf16_levels():
        raise InputError(
            f"precision={options.precision!r} needs a CPU with AVX512-BF16, which {level} on this machine lacks; "
            "leave it out: f32 is as fast here, and a model whose weights are float16 or bfloat16 "
            "reads half the memory all the same"
        )
    if options.device:
        spec = find_spec(options.device)
        return _core.ModelBuilder(
            spec.target, spec.part, options.queues, options.simd or "", this_machine().core
        )
    try:
        return _core.ModelBuilder(
            options.cores or 0,
            options.simd or "",
            options.local_bytes or 0,
            this_machine().core,
            options.spin,
        )
    except MemoryError as error:
        raise OutOfMemoryError(
            f"no memory for local_bytes={options.local_bytes} on every core"
        ) from error


def multiplies_bf16(options: Options) -> bool:
    """Whether this is the host, and it has instructions for products of bfloat16.

    Raises:
        InputError: the machine lacks the level that is asked for.
    """
    return not options.device and _level(options.simd) in _core.bf16_levels()


def _level(simd: str | None) -> str:
    """The instruction-set level to run with: the one asked for, or the best."""
    levels = _core.simd_levels()
    built = ", ".join(_core.built_levels())
    more = "`make test` and wheels build the code of every level (CMake's DVM_LEVELS=all)"
    if not levels:
        raise InputError(f"this build has code for {built}, which this CPU does not run; {more}")
    if simd is not None and simd not in levels:
        raise InputError(
            f"simd is {simd!r}, but this machine has {', '.join(levels)}, of the levels that were built: {built}; {more}"
        )
    return simd or levels[0]
