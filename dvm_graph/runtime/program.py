"""A compiled model that runs.

In: one array per model input. Out: one array per model output. Everything between the two happens in
C++, but for vendor operators. Invariants: `run` may be called from several threads; a failed run
leaves the program usable. It decides nothing about fusion or shapes: the plan did.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dvm_graph import _core
from dvm_graph.errors import InputError, OutOfMemoryError
from dvm_graph.ir import DType
from dvm_graph.process import MappedFile
from dvm_graph.runtime.arrays import as_array
from dvm_graph.runtime.run_options import RunOptions

if TYPE_CHECKING:
    from dvm_graph.runtime.vendor import VendorPartition

SECONDS_AT_EXIT = 5.0
"""How long the interpreter waits for runs of daemon threads, which it ends when it exits."""
atexit.register(_core.end_calls, SECONDS_AT_EXIT)


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model."""

    name: str
    dtype: DType
    opaque: bool = False
    """Passed as it comes: kernels do not look at it."""
    element: DType | None = None
    """Of a sequence or optional value that is no affair of the vendor library alone: the dtype of its tensors."""
    strings: int | None = None
    """Of a tensor of strings its rank, below 0 for any; None: it is none."""
    numpy: np.dtype[Any] = field(init=False, repr=False)
    """The dtype of its arrays: asked for at every run."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "numpy", self.dtype.numpy)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the device's cores cannot exceed together, per second."""

    flops: float
    """f32 multiply-adds, two operations each."""
    copy_bytes: float
    """Read and written by copies between buffers larger than the caches."""
    read_bytes: float


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """What one run cost."""

    run_ns: int
    compile_ns: int
    """Sum over the kernels compiled, on whichever core; handing them to another one included."""
    max_compile_ns: int
    """Longest compilation of one kernel."""
    kernels_compiled: int
    """Distinct kernels whose dims are not those they were compiled for last: 0 where all programs of
    earlier runs served again. Kernels that differ only in the buffers they touch count once."""
    kernels_launched: int
    """Calls of kernels, each on buffers of its own."""
    fallbacks: int
    """Speculated kernels that gave way to their fallback."""
    arena_bytes: int
    """Memory held for intermediate values."""
    profile: _core.RunProfile | None
    """Where the time went, of a run that was profiled."""

    @property
    def mean_compile_ns(self) -> float:
        """Per kernel compiled."""
        return self.compile_ns / self.kernels_compiled if self.kernels_compiled else 0.0


@dataclass(frozen=True, slots=True)
class FlagCounts:
    """Of the flags in programs for a simulated part, each program once: who notices one that is missing."""

    waits: int
    unbalanced: int
    """Without the wait the verifier refuses the program, since its signal is left over."""
    unordered: int
    """Without the wait and its signal, too, since nothing else orders as much. Others are spare."""
    seen: int
    """Of those, the ones whose absence gives other numbers in some order of queues."""
    mistaken: int
    """Spare ones without which there are other numbers: 0, or the verifier is wrong."""


_COSTS = attrgetter(*(cost.name for cost in fields(RunStatistics)))
_COUNTS = attrgetter(*(count.name for count in fields(FlagCounts)))
"""As the core has them, too."""


@dataclass(frozen=True, slots=True)
class KernelListing:
    """A kernel and the text of its programs, one per stage and part."""

    name: str
    text: str
    why: str = ""
    """In place of which kernel it runs as its fallback, or that it was compiled operator by operator, and why."""
    steps: str = ""
    """Where they were asked for: tile code behind each step of the run-time compiler, of every form it tried."""

    def __str__(self) -> str:
        """A line of heading, the steps, and the programs."""
        return f"; {self.name}{f' ({self.why})' if self.why else ''}\n{self.steps}{self.text}"


@dataclass(frozen=True, slots=True)
class CompileTime:
    """What compiling a kernel costs in nanoseconds, the check of its programs included."""

    kernel: str
    """The first of those that share the programs."""
    first_ns: int
    median_ns: int
    least_ns: int


class Program:
    """A model ready to run on the host device."""

    def __init__(
        self,
        core: _core.Program,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        files: Sequence[MappedFile] = (),
        partitions: Sequence[VendorPartition] = (),
        bodies: Sequence[Program] = (),
    ) -> None:
        self._core = core
        self.bodies = tuple(bodies)
        """Of its control flow, by number: run by the steps of this one."""
        self.partitions = tuple(partitions)
        """What runs on onnxruntime, by number."""
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._files = tuple(files)
        core.take_as_they_come(
            [_comes_as_it_is(port) for port in self._inputs],
            [_NO_STRINGS if port.strings is None else port.strings for port in self._inputs],
        )
        self._bfloats = [
            i for i, port in enumerate(outputs) if port.dtype is DType.BFLOAT16 and not port.opaque
        ]

    @property
    def vendor_casts(self) -> tuple[str, ...]:
        """Vendor operators that onnxruntime has for wider types only: "Compress (node): bfloat16 as
        float".
        """
        own = (cast for partition in self.partitions for cast in partition.model.casts)
        return (*own, *(cast for body in self.bodies for cast in body.vendor_casts))

    @property
    def lacking(self) -> tuple[str, ...]:
        """Kernels whose products the cube unit of a simulated part does not have, and what it lacks."""
        return (*self._core.lacking, *(name for body in self.bodies for name in body.lacking))

    @property
    def core(self) -> _core.Program:
        """For the program that this one is a body of, and for simulations."""
        return self._core

    def contents(self, value: int) -> Any:
        """What a constant of the plan holds, panels as they are packed; None where nothing reads it."""
        return self._core.contents(value)

    def panel_columns(self, dtype: DType) -> int:
        """Columns that lie side by side in a packed panel of this type on the device."""
        return self._core.panel_columns(dtype.short)

    @property
    def cores(self) -> int:
        """AI cores of the device the program runs on."""
        return self._core.cores

    @property
    def simd(self) -> str:
        """The device's instruction-set level."""
        return self._core.simd

    @property
    def flags(self) -> FlagCounts:
        """Of the programs that ran so far, on a part whose queues are audited."""
        return FlagCounts(*_COUNTS(self._core.flags))

    @property
    def statistics(self) -> RunStatistics:
        """Of the run that ended last, whichever thread it was."""
        return RunStatistics(*_COSTS(self._core.statistics))

    def run(
        self,
        feeds: Mapping[str, ArrayLike],
        outputs: Mapping[str, NDArray[Any]] | None = None,
        *,
        options: RunOptions | None = None,
        record: _core.RunStatistics | None = None,
    ) -> list[NDArray[Any]]:
        """Runs the model.

        Args:
            feeds: an array per input. Contiguous arrays are read in place, others copied.
            outputs: arrays to write results into, by output name; the rest are fresh.
            options: what may end the run.
            record: where the time of this run goes, and what else it costs, is written there.

        Raises:
            ExternalDataError: a file of mapped weights changed since the model was loaded.
            CancelledError: `options` ended the run.
            InputError: an array is missing, unknown, or has a wrong dtype, rank or layout.
            ShapeError: dims contradict each other.
            OutOfMemoryError: this run needs more memory than there is.
            ExecutionError: a kernel or a vendor operator failed.
        """
        try:
            given = list(self._targets(outputs)) if outputs else []
            for file in self._files:
                file.check()
            stop = None if options is None else options.stop_flag
            results = self._core.run_on(feeds, given, record, stop, options)
            if results is None:  # feeds that are to be converted, or refused
                results = self._core.run(self._arrays(feeds), given, record, stop, options)
            for index in self._bfloats:
                results[index] = results[index].view(self._outputs[index].numpy)
            if outputs:
                self._copy_out(results, outputs)
            return results
        except MemoryError as error:
            if isinstance(error, OutOfMemoryError):
                raise
            raise OutOfMemoryError("no memory left to run the model") from error

    def profile(self, feeds: Mapping[str, ArrayLike]) -> _core.RunProfile:
        """Where the time of a run goes, whatever other threads run meanwhile.

        Raises:
            DvmError: as `run`.
        """
        record = _core.RunStatistics()
        self.run(feeds, record=record)
        assert record.profile is not None
        return record.profile

    def forget(self) -> None:
        """Drops programs and memory layouts: the next run makes its own, as for a new shape."""
        self._core.forget()

    def ceilings(self) -> Ceilings:
        """Measured at the first call of the process, which takes about a fifth of a second."""
        return _ceilings(self.cores, self.simd)

    def disassemble(self, feeds: Mapping[str, ArrayLike]) -> str:
        """The bytecode of every kernel for the shapes of `feeds`, in the assembler's text form."""
        symbols = self._core.bind(self._arrays(feeds))
        return "".join(map(str, self.listings(symbols)))

    def listings(
        self,
        dims: Mapping[str, int],
        *,
        steps: bool = False,
        target: _core.Target | None = None,
    ) -> list[KernelListing]:
        """As `disassemble`, kernel by kernel and for named dims; `steps`: with those to there; `target`: for another one
        than the device.

        Kernels that depend on dims which are not named are left out.
        """
        found = self._core.disassemble(named_extents(dims), steps, target)
        return [KernelListing(*listing) for listing in found]

    def compile_times(self, dims: Mapping[str, int], repeats: int) -> list[CompileTime]:
        """What compiling each distinct kernel for named dims costs, each `repeats` times in a row.

        Kernels that depend on dims which are not named are left out.
        """
        return [CompileTime(*fields) for fields in self._core.compile_times(dict(dims), repeats)]

    def _arrays(self, feeds: Mapping[str, ArrayLike]) -> list[Any]:
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise InputError(
                f"feeds are a mapping of names to arrays, not a {type(feeds).__name__}"
            )
        arrays = []  # a comprehension would take as long as the checks
        for port in self._inputs:
            if port.name not in feeds:
                self._refuse_names(feeds)
            arrays.append(_input_array(port, feeds[port.name]))
        if len(feeds) != len(arrays):
            self._refuse_names(feeds)
        return arrays

    def _refuse_names(self, feeds: Mapping[str, ArrayLike]) -> NoReturn:
        names = [port.name for port in self._inputs]
        unknown = [name for name in feeds if name not in names]
        missing = [name for name in names if name not in feeds]
        what = f"unknown input {unknown[0]!r}" if unknown else f"missing input {missing[0]!r}"
        raise InputError(f"{what}; the model's inputs are {', '.join(names)}")

    def _targets(self, outputs: Mapping[str, NDArray[Any]]) -> Iterator[Any]:
        names = [port.name for port in self._outputs]
        for name in outputs:
            if name not in names:
                raise InputError(f"unknown output {name!r}; outputs are {', '.join(names)}")
        for port in self._outputs:
            target = _output_array(port, outputs[port.name]) if port.name in outputs else None
            yield None if _is_copied(port) else target

    def _copy_out(self, results: list[Any], outputs: Mapping[str, NDArray[Any]]) -> None:
        """Results that kernels do not write, where the caller wants them."""
        for index, port in enumerate(self._outputs):
            if port.name not in outputs or not _is_copied(port):
                continue
            array, result = outputs[port.name], results[index]
            if array.shape != result.shape:
                raise InputError(
                    f"the array given for output {port.name} has shape {list(array.shape)}, "
                    f"but this run gives {list(result.shape)}"
                )
            np.copyto(array, result)
            results[index] = array


_BFLOAT16 = DType.BFLOAT16  # looking members up takes a while
_NO_STRINGS = -2
"""In place of a rank."""


@functools.cache
def _ceilings(cores: int, simd: str) -> Ceilings:
    return Ceilings(*_core.CeilingMeter(cores, simd).measure())


def named_extents(dims: Mapping[str, int]) -> dict[str, int]:
    """Extents that somebody gave for dims.

    Raises:
        InputError: one is below 0.
    """
    for name, extent in dims.items():
        if extent < 0:
            raise InputError(f"dim {name} is {extent}, but extents are 0 or more")
    return dict(dims)


def _input_array(port: Port, feed: ArrayLike) -> object:
    """The feed as the core takes it: contiguous, aligned, bfloat16 as its bits."""
    if port.opaque:
        return _as_it_comes(port, feed)
    array = feed if type(feed) is np.ndarray else _converted(port, feed)
    dtype = array.dtype
    if dtype is not port.numpy and dtype != port.numpy:
        array = _in_native_order(port, array)
    flags = array.flags
    if not flags.carray and not (flags.c_contiguous and flags.aligned):
        array = _contiguous(port, array)
    return array.view(np.uint16) if port.dtype is _BFLOAT16 else array


def _comes_as_it_is(port: Port) -> bool:
    """Strings and maps, which only who reads them looks at."""
    return port.opaque and port.element is None and port.dtype is DType.OPAQUE


def _as_it_comes(port: Port, feed: ArrayLike) -> object:
    if port.element is not None:
        return _held(port.name, port.element, feed)
    if port.strings is not None:
        return _strings(port, port.strings, feed)
    if _comes_as_it_is(port):
        return feed
    array = np.asarray(_converted(port, feed), order="C")
    if array.dtype != port.numpy:
        raise InputError(f"input {port.name} is {array.dtype}, but the model wants {port.numpy}")
    return array


def _strings(port: Port, rank: int, feed: ArrayLike) -> object:
    """An array of objects, of text or of bytes; what is in it is looked at by who reads it.

    Raises:
        InputError: it is none, or of another rank than the model has.
    """
    array = as_array(port.name, feed, object) if isinstance(feed, list) else feed
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "OUS":
        given = array.dtype if isinstance(array, np.ndarray) else f"a {type(feed).__name__}"
        raise InputError(f"input {port.name} is {given}, but the model wants an array of strings")
    if rank >= 0 and array.ndim != rank:
        raise InputError(
            f"input {port.name} has rank {array.ndim} (shape {list(array.shape)}), but the model wants "
            f"strings of rank {rank}"
        )
    return array


def _held(name: str, element: DType, feed: ArrayLike) -> object:
    """A list of arrays, an array, or None, with rows that lie without gaps."""
    if feed is None:
        return None
    parts = feed if isinstance(feed, list) else [feed]
    arrays = [np.asarray(part, order="C") for part in parts]
    wrong = [array.dtype for array in arrays if array.dtype != element.numpy]
    if wrong:
        raise InputError(f"input {name} holds {wrong[0]}, but the model wants {element.value}")
    return arrays if isinstance(feed, list) else arrays[0]


def _converted(port: Port, feed: ArrayLike) -> NDArray[Any]:
    """What is no array as one; Python's numbers, alone and in lists, become those of the input's dtype that equal them.

    Arrays of subclasses are read as they are, but for masked elements, which have no value.
    """
    if isinstance(feed, np.ma.MaskedArray) and np.ma.is_masked(feed):
        raise InputError(f"input {port.name} has masked elements; fill them in first")
    array = as_array(port.name, feed)
    if not isinstance(feed, list | tuple | bool | int | float) or port.dtype is DType.OPAQUE:
        return array
    return _fitted(port, array) if array.dtype.kind in "biuf" else array


def _fitted(port: Port, array: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        result = array.astype(port.numpy)
    whole = array.dtype.kind in "iu" or port.numpy.kind in "biu"
    if whole and not np.array_equal(result, array):
        raise InputError(f"input {port.name}: a number does not fit {port.dtype.value}")
    return result


def _in_native_order(port: Port, array: NDArray[Any]) -> NDArray[Any]:
    """The array where only the order of its bytes is not that of the machine.

    Raises:
        InputError: its dtype is another.
    """
    if array.dtype.newbyteorder("=") == port.numpy:
        return array.astype(port.numpy)
    raise InputError(f"input {port.name} is {array.dtype}, but the model wants {port.dtype.value}")


def _contiguous(port: Port, array: NDArray[Any]) -> NDArray[Any]:
    try:
        return np.array(array, order="C")
    except MemoryError as error:
        raise OutOfMemoryError(
            f"no memory for a contiguous copy of input {port.name} of shape {list(array.shape)}"
        ) from error


def _is_copied(port: Port) -> bool:
    """A tensor of numbers whose rank only the run tells: the core does not write it into arrays of the caller's."""
    return port.opaque and port.element is None and port.dtype is not DType.OPAQUE


def _output_array(port: Port, array: NDArray[Any]) -> object:
    """An array that a result may be written into, as the core takes it."""
    if (port.opaque and not _is_copied(port)) or not isinstance(array, np.ndarray):
        raise InputError(f"output {port.name} cannot be written into a {type(array).__name__}")
    if array.dtype != port.numpy:
        raise InputError(
            f"the array given for output {port.name} is {array.dtype}, "
            f"but the model gives {port.dtype.value}"
        )
    if not array.flags.carray:
        raise InputError(
            f"the array given for output {port.name} must be C-contiguous, aligned and writeable"
        )
    return port.dtype.bits(array)
