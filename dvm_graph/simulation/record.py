"""The record of a simulation: when each kernel would run on a part, and what its units would do.

All times are seconds. A *launch* is what the host hands to the device at once: one kernel, kernels side
by side (spatial stacking), or stages of them with a barrier of the device between (temporal stacking).
A *stage* is what runs between two barriers. Work (FLOPs, bytes) is what there is to do however it is
tiled; traffic is what the tiles move.

Invariants: launches do not overlap on the device; a launch does not start before the host is done with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from dvm_graph.npu.spec import Spec


@dataclass(frozen=True, slots=True)
class Unit:
    """A queue's unit, over the cores of a stage: parts of the time of these cores."""

    busy: float
    for_decode: float
    """Idle: the scalar unit has not decoded what it is to do."""
    for_flag: Mapping[str, float]
    """Idle: waits for the unit of that name."""
    shared: float
    """Of busy: what transfers take longer because others are in flight."""
    instructions: int


@dataclass(frozen=True, slots=True)
class Span:
    """What a queue of a core did."""

    core: int
    unit: str
    name: str
    """An instruction; "" stands for as many tiles as `tile` says, which are alike."""
    start: float
    end: float
    tile: int


@dataclass(frozen=True, slots=True)
class Flag:
    """From when one unit set a flag to when another one, of this core, went on."""

    core: int
    from_core: int
    source: str
    target: str
    set: float
    taken: float


@dataclass(frozen=True, slots=True)
class CoreTiles:
    """What one core does of a stage, in this order: tiles [begin, end) of kernels.

    Of a pair the cube core is named, and its tiles; its vector cores go with them.
    """

    kind: str
    """cube or vector."""
    core: int
    tiles: tuple[tuple[str, int, int], ...]

    def __str__(self) -> str:
        parts = ", ".join(f"{kernel} {begin}..{end - 1}" for kernel, begin, end in self.tiles)
        return f"{self.kind} core {self.core}: {parts}"


@dataclass(frozen=True, slots=True)
class Stage:
    kernels: tuple[str, ...]
    kind: str
    """vector, cube or mix; joined by + where kernels of several kinds run side by side."""
    origin: tuple[str, ...]
    """The ONNX nodes of each."""
    lacking: Mapping[str, str]
    """By kernel: what the cube unit lacks of its product, which therefore runs as on a core with one local memory. Such
    times say nothing of a real part."""
    fallback: bool
    start: float
    seconds: float
    cores: int
    tiles: tuple[int, ...]
    units: Mapping[str, Unit]
    scalar: float
    """Part of the cores' time that their scalar units decode."""
    flops: float
    """Of products."""
    vector_flops: float
    bytes: float
    read: float
    """Bytes through the shared cache."""
    written: float
    memory_bytes: float
    """Of them, from and to memory."""
    instructions: int
    simulated: int
    """Of the instructions, those that were looked at one by one; the others are of tiles alike."""
    lane_units: Mapping[str, Unit]
    """Of pairs: those of the vector cores that go on with a cube core's blocks, over the time of these cores."""
    alike: Mapping[int, int]
    """How many cores do the same as the one of that number."""
    core_tiles: tuple[CoreTiles, ...]
    """Of the cores that have something to do."""
    spans: tuple[Span, ...] = ()
    flags: tuple[Flag, ...] = ()

    @property
    def name(self) -> str:
        return " | ".join(dict.fromkeys(self.kernels))

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def decode_exposed(self) -> float:
        """Part of the time in which the busiest unit waits for the scalar unit; 0: decoding is hidden."""
        busiest = max(self.units.values(), key=lambda unit: unit.busy, default=None)
        return busiest.for_decode if busiest else 0.0

    @property
    def busiest(self) -> str:
        """The unit that works most."""
        return max(self.units, key=lambda name: self.units[name].busy, default="")


@dataclass(frozen=True, slots=True)
class Host:
    """What the host did for a launch."""

    start: float
    kernels: int
    """That it compiled: those first met here."""
    compile_seconds: float
    """Of these; where it is measured, to make several kernels one program, too."""
    launch_seconds: float

    @property
    def end(self) -> float:
        return self.start + self.compile_seconds + self.launch_seconds


@dataclass(frozen=True, slots=True)
class Launch:
    host: Host
    start: float
    """Of the device's work for it."""
    startup_seconds: float
    """Until the cores are at it, and at barriers between its stages."""
    program_bytes: int
    """Of the one program that its kernels are stacked to, with the table of what each core runs."""
    programs: int
    """That it is made of and that differ: kernels that are alike have one."""
    stages: tuple[Stage, ...]

    @property
    def end(self) -> float:
        return self.stages[-1].start + self.stages[-1].seconds


@dataclass(frozen=True, slots=True)
class Simulation:
    """A model on a part; `str()` prints its tables."""

    spec: Spec
    dims: Mapping[str, int]
    launches: tuple[Launch, ...]
    vendor_calls: tuple[str, ...]
    """Operators of the vendor's library: their time is not known and counts as none."""

    @property
    def stages(self) -> Iterator[Stage]:
        for launch in self.launches:
            yield from launch.stages

    @property
    def seconds(self) -> float:
        """From the host's first work to the device's last."""
        return max((launch.end for launch in self.launches), default=0.0)

    @property
    def device_seconds(self) -> float:
        """In which cores work."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def compile_seconds(self) -> float:
        return sum(launch.host.compile_seconds for launch in self.launches)

    @property
    def exposed_seconds(self) -> float:
        """In which the device waits for the host."""
        waits, free = 0.0, 0.0
        for launch in self.launches:
            waits += max(0.0, launch.start - free)
            free = launch.end
        return waits

    @property
    def memory_rate(self) -> float:
        """Bytes per second that transfers share."""
        return self.spec["bandwidth.hbm"] * self.spec["bandwidth.hbm_efficiency"]

    def peak(self, dtype: str = "f16") -> float:
        """FLOP/s of the cube units."""
        return self.spec[f"cube.peak_{dtype}"]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the traces."""
        stages = []
        for number, launch in enumerate(self.launches):
            for stage in launch.stages:
                data = asdict(stage)
                del data["spans"], data["flags"]
                stages.append({"launch": number, **data, "decode_exposed": stage.decode_exposed})
        return {
            "part": self.spec.name,
            "dims": dict(self.dims),
            "seconds": self.seconds,
            "device_seconds": self.device_seconds,
            "compile_seconds": self.compile_seconds,
            "exposed_seconds": self.exposed_seconds,
            "launches": len(self.launches),
            "vendor_calls": list(self.vendor_calls),
            "stages": stages,
        }

    def write_csv(self, path: str | PathLike[str]) -> None:
        """A row for each stage, with the columns that users of CANN's profiler know."""
        from dvm_graph.simulation.summary import write_csv

        write_csv(self, path)

    def write_trace(self, path: str | PathLike[str]) -> None:
        """A Chrome trace, for Perfetto or chrome://tracing: host, device, and each unit of each core."""
        from dvm_graph.simulation.trace import write_trace

        write_trace(self, path)

    def draw(self, path: str | PathLike[str]) -> None:
        """A picture (.svg): the timeline of units above, the roofline below."""
        from dvm_graph.simulation.picture import draw

        draw(self, path)

    def __str__(self) -> str:
        from dvm_graph.simulation.text import print_simulation

        return print_simulation(self)
