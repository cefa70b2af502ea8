"""The record of a profile: what ran, for how long, on which core.

All times are seconds. A *core-second* is a second of one core: a run on two cores has two of them per
second. Work (FLOPs, bytes) is what a kernel has to do however it is tiled: 2mnk for a matrix product,
one operation for each result of an element-wise operator and each element that a reduction folds; bytes
are those of distinct elements read or written in global memory. So reading an operand twice lowers the
rate, and what stays in a cache between two kernels may exceed the ceiling of copies.

Invariants: `Profile.kernels` name each launched kernel once, those in bodies of control flow with the body they are
in ("Loop (l) body 0/k0_add"); the spans of a lane lie within the run, and do not overlap but for those of bodies, which lie
within the span of their control flow.

What it does not do: measure. `collect` does, and the C++ core underneath.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any


@dataclass(frozen=True, slots=True)
class Instruction:
    """All instructions of one family; `tiles` is the scalar unit moving from tile to tile."""

    family: str
    """Or several, "v_sub+v_exp", of instructions that run joined."""
    unit: str
    """scalar, vector, cube or dma."""
    count: int
    core_seconds: float


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel, over all its launches of one run."""

    name: str
    kind: str
    """vector, cube or mix."""
    origin: tuple[str, ...]
    """The ONNX nodes it came from."""
    operators: tuple[str, ...]
    """Their ONNX operators, each once."""
    fallback: bool
    """It stands in for a speculated kernel."""
    launches: int
    programs: int
    tiles: int
    core_seconds: float
    seconds: float
    """During which at least one core worked on it."""
    compile_seconds: float
    """At a shape not seen before; 0 where the programs of an equal kernel served."""
    matmul_flops: int
    vector_flops: int
    read_bytes: int
    written_bytes: int
    instructions: tuple[Instruction, ...]

    @property
    def flops(self) -> int:
        return self.matmul_flops + self.vector_flops

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        moved = self.read_bytes + self.written_bytes
        return moved / self.seconds if self.seconds else 0.0

    def balance(self, cores: int) -> float:
        """Of the core-seconds until its last core was done, the part that cores worked."""
        return self.core_seconds / (cores * self.seconds) if self.seconds else 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """Something that a lane did without a pause."""

    name: str
    category: str
    """A kind of kernel; of the host "bind", "memory", "stage", "vendor", "control", "host", "compile"."""
    start: float
    """From the start of the run."""
    seconds: float
    tiles: int = 0

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass(frozen=True, slots=True)
class Timeline:
    """One run, lane by lane."""

    seconds: float
    cores: tuple[tuple[Span, ...], ...]
    host: tuple[Span, ...]
    """What the calling thread did: it has kernels carried out in stages; within control flow, what its bodies do."""
    compiler: tuple[Span, ...]
    """The compilation of kernels, on whichever core."""

    @property
    def busy(self) -> float:
        """Core-seconds in kernels."""
        return sum(span.seconds for lane in self.cores for span in lane)

    @property
    def working(self) -> float:
        """Seconds during which at least one core was in a kernel."""
        return covered(span for lane in self.cores for span in lane)

    @property
    def idle(self) -> float:
        """Core-seconds without work while another core had some: imbalance."""
        return len(self.cores) * self.working - self.busy

    @property
    def vendor(self) -> float:
        """Seconds in the vendor library."""
        return sum(span.seconds for span in self._of("vendor"))

    @property
    def host_operators(self) -> float:
        """Seconds in operators that the host carries out."""
        return sum(span.seconds for span in self._of("host"))

    @property
    def control(self) -> float:
        """Seconds in control flow but in none of these: turn by turn, what `host_alone` is of the whole."""
        computing = list(self._computing())
        return covered([*computing, *self._of("control")]) - covered(computing)

    @property
    def host_alone(self) -> float:
        """Seconds in none of these: binding dims, memory, waiting for kernels to be compiled, launching."""
        return self.seconds - covered([*self._computing(), *self._of("control")])

    def _of(self, category: str) -> Iterator[Span]:
        return (span for span in self.host if span.category == category)

    def _computing(self) -> Iterator[Span]:
        for lane in self.cores:
            yield from lane
        yield from self._of("vendor")
        yield from self._of("host")


@dataclass(frozen=True, slots=True)
class Profile:
    """A model's runs at the shapes of some feeds; `str()` prints the tables of `text`."""

    cores: int
    simd: str
    peak_flops: float
    """f32 multiply-adds of all cores, operations per second, as measured on this machine."""
    copy_bytes: float
    """Bytes read and written per second by copies between buffers larger than the caches."""
    read_bytes: float
    """Bytes per second that reading buffers larger than the caches reaches."""
    run_seconds: tuple[float, ...]
    """Of every run but the first, in order."""
    first: Timeline
    """A run that compiled every kernel, as at a shape never seen before."""
    typical: Timeline
    """The run of median duration among the others; `kernels` are of this run."""
    kernels: tuple[Kernel, ...]
    """In the order of their first launch."""

    @property
    def compile_seconds(self) -> float:
        return sum(kernel.compile_seconds for kernel in self.kernels)

    def share(self, core_seconds: float) -> float:
        """Of all core-seconds of the typical run."""
        total = self.cores * self.typical.seconds
        return core_seconds / total if total else 0.0

    def shares(self) -> dict[str, float]:
        """Of all core-seconds of the typical run, by kernel and call; all cores wait for the latter."""
        found = {kernel.name: self.share(kernel.core_seconds) for kernel in self.kernels}
        for span in self.typical.host:
            if span.category in ("vendor", "control", "host"):
                share = self.share(self.cores * span.seconds)
                found[span.name] = found.get(span.name, 0.0) + share
        return found

    def instructions(self) -> tuple[Instruction, ...]:
        """Of all kernels, the longest first."""
        return merge_instructions(
            instruction for kernel in self.kernels for instruction in kernel.instructions
        )

    def onnx_operators(self) -> tuple[tuple[str, int, float], ...]:
        """By the ONNX operators in a kernel, "MatMul+Add": launches and core-seconds, the longest first."""
        totals: dict[str, tuple[int, float]] = {}
        for kernel in self.kernels:
            name = "+".join(kernel.operators)
            launches, seconds = totals.get(name, (0, 0.0))
            totals[name] = launches + kernel.launches, seconds + kernel.core_seconds
        entries = ((name, *total) for name, total in totals.items())
        return tuple(sorted(entries, key=lambda entry: (-entry[2], entry[0])))

    def units(self) -> dict[str, float]:
        """Core-seconds in the instructions of each unit, the longest first."""
        totals: dict[str, float] = {}
        for instruction in self.instructions():
            totals[instruction.unit] = totals.get(instruction.unit, 0.0) + instruction.core_seconds
        return dict(sorted(totals.items(), key=lambda item: -item[1]))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the timelines; those are for `write_trace`."""
        names = ("cores", "simd", "peak_flops", "copy_bytes", "read_bytes")
        data = {name: getattr(self, name) for name in names}
        return data | {
            "first_seconds": self.first.seconds,
            "run_seconds": list(self.run_seconds),
            "seconds": self.typical.seconds,
            "busy": self.typical.busy,
            "idle": self.typical.idle,
            "vendor": self.typical.vendor,
            "control": self.typical.control,
            "host_operators": self.typical.host_operators,
            "host_alone": self.typical.host_alone,
            "compile_seconds": self.compile_seconds,
            "units": self.units(),
            "onnx_operators": [
                {"operators": name, "launches": launches, "core_seconds": seconds}
                for name, launches, seconds in self.onnx_operators()
            ],
            "vendor_calls": [
                {"name": span.name, "seconds": span.seconds}
                for span in self.typical.host
                if span.category == "vendor"
            ],
            "kernels": [
                asdict(kernel)
                | {
                    "flops_per_second": kernel.flops_per_second,
                    "bytes_per_second": kernel.bytes_per_second,
                    "balance": kernel.balance(self.cores),
                    "share": self.share(kernel.core_seconds),
                }
                for kernel in self.kernels
            ],
        }

    def write_trace(self, path: str | PathLike[str]) -> None:
        """Writes both runs as a Chrome trace, for Perfetto or chrome://tracing."""
        from dvm_graph.profile.trace import write_trace

        write_trace(self, path)

    def __str__(self) -> str:
        from dvm_graph.profile.text import print_profile

        return print_profile(self)


def merge_instructions(instructions: Iterable[Instruction]) -> tuple[Instruction, ...]:
    """One for each family, the longest first."""
    merged: dict[str, Instruction] = {}
    for new in instructions:
        old = merged.get(new.family, Instruction(new.family, new.unit, 0, 0.0))
        merged[new.family] = Instruction(
            new.family, new.unit, old.count + new.count, old.core_seconds + new.core_seconds
        )
    return tuple(sorted(merged.values(), key=lambda entry: (-entry.core_seconds, entry.family)))


def covered(spans: Iterable[Span]) -> float:
    """Seconds that at least one of the spans covers."""
    return sum(end - start for start, end in _union(spans))


def _union(spans: Iterable[Span]) -> Iterator[tuple[float, float]]:
    bounds = sorted((span.start, span.end) for span in spans)
    if not bounds:
        return
    start, end = bounds[0]
    for next_start, next_end in bounds[1:]:
        if next_start > end:
            yield start, end
            start = next_start
        end = max(end, next_end)
    yield start, end
