"""The C++ core. `runtime/` wraps all of it; nothing else imports it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from numpy.typing import NDArray

Array = NDArray[Any]
NODE_FIELDS: tuple[str, ...]
ACCESS_FIELDS: tuple[str, ...]
WINDOW_SIZES: tuple[str, ...]
"""Tables of kernels/plan.def: what the fields of records are called, in order."""
SCRATCH_BYTES: int
"""Of a core, beside its local memory (vm/core.h)."""
TRANSFORM_TAPS: int
TRANSFORM_POINTS: int
"""Along each axis (kernels/transforms.h)."""
TRANSFORMED_ROWS: int
"""Of panels, over those of the taps."""
Record = Sequence[Any]
"""The fields of one of these tables, in its order."""

class InstructionProfile:
    family: str
    unit: str
    count: int
    ns: int

class KernelProfile:
    name: str
    kind: str
    origin: list[str]
    fallback: bool
    launches: int
    programs: int
    tiles: int
    matmul_flops: int
    vector_flops: int
    read_bytes: int
    written_bytes: int
    instructions: list[InstructionProfile]

class KernelSpan:
    core: int
    kernel: int
    start_ns: int
    end_ns: int
    tiles: int

class CompileSpan:
    kernel: int
    start_ns: int
    end_ns: int

class HostSpan:
    category: str
    name: str
    start_ns: int
    end_ns: int

class RunProfile:
    run_ns: int
    kernels: list[KernelProfile]
    spans: list[KernelSpan]
    compilations: list[CompileSpan]
    host: list[HostSpan]

class RunStatistics:
    def __init__(self) -> None: ...
    run_ns: int
    compile_ns: int
    max_compile_ns: int
    kernels_compiled: int
    kernels_launched: int
    fallbacks: int
    arena_bytes: int
    profile: RunProfile | None

class FlagCounts:
    waits: int
    unbalanced: int
    unordered: int
    seen: int
    mistaken: int

class StopFlag:
    def __init__(self) -> None: ...
    set: bool

def judge(meeting: object, pattern: str) -> tuple[str, str, tuple[str, ...]]: ...
def end_calls(seconds: float) -> None: ...
def available_cores() -> int: ...
def available_memory() -> int: ...
def checksums(contents: Array | memoryview, block: int, threads: int) -> bytes: ...

class Program:
    def run(
        self,
        inputs: list[Any],
        given: list[Any],
        record: RunStatistics | None,
        stop: StopFlag | None = None,
        options: object = None,
    ) -> list[Any]: ...
    def run_on(
        self,
        feeds: object,
        given: list[Any],
        record: RunStatistics | None,
        stop: StopFlag | None,
        options: object,
    ) -> list[Any] | None: ...
    def take_as_they_come(self, inputs: Sequence[bool], strings: Sequence[int]) -> None: ...
    def forget(self) -> None: ...
    def bind(self, inputs: list[Any]) -> dict[str, int]: ...
    def disassemble(
        self, symbols: dict[str, int], steps: bool, target: Target | None
    ) -> list[tuple[str, str, str, str]]: ...
    def compile_times(
        self, symbols: dict[str, int], repeats: int
    ) -> list[tuple[str, int, int, int]]: ...
    def simulate(
        self,
        symbols: dict[str, int],
        target: Target,
        part: NpuPart,
        cold_cache: bool,
        side_by_side: bool,
        stacked: bool,
        launch_kernels: int,
        most_spans: int,
        compile_repeats: int,
    ) -> SimulatedModel: ...
    def contents(self, value: int) -> Any: ...
    def panel_columns(self, dtype: str) -> int: ...
    @property
    def statistics(self) -> RunStatistics: ...
    @property
    def cores(self) -> int: ...
    @property
    def flags(self) -> FlagCounts: ...
    @property
    def lacking(self) -> list[str]: ...
    @property
    def simd(self) -> str: ...

class Target:
    def __init__(
        self,
        numbers: Mapping[str, float],
        arithmetic: Mapping[str, Sequence[str]] = ...,
        cycles: Mapping[str, float] = ...,
    ) -> None: ...

class NpuPart:
    def __init__(
        self, name: str, numbers: Mapping[str, float], cycles: Mapping[str, float]
    ) -> None: ...

class UnitTiming:
    busy: float
    for_decode: float
    for_flag: list[float]
    for_others: float
    instructions: float

class StageTiming:
    cycles: float
    cores: int
    lanes: int
    units: list[UnitTiming]
    lane_units: list[UnitTiming]
    decoding: float
    read: float
    written: float
    memory_read: float
    memory_written: float
    flops: float
    instructions: float
    simulated: int
    traced_cores: list[tuple[int, int]]
    spans: list[tuple[int, int, str, float, float, int]]
    flags: list[tuple[int, int, int, int, float, float]]

class SimulatedPart:
    program: int
    begin: int
    end: int

class SimulatedCore:
    cube: bool
    number: int
    parts: list[SimulatedPart]

class SimulatedStage:
    kernels: list[str]
    kinds: list[str]
    origins: list[str]
    tiles: list[int]
    lacking: list[str]
    fallback: bool
    compiled: int
    compile_seconds: float
    flops: float
    vector_flops: float
    bytes: float
    cores: list[SimulatedCore]
    timing: StageTiming

class SimulatedLaunch:
    stages: list[SimulatedStage]
    words: int
    programs: int
    stack_seconds: float

class SimulatedModel:
    launches: list[SimulatedLaunch]
    vendor_calls: list[str]

class Machine:
    def __init__(self, name: str, numbers: Mapping[str, float]) -> None: ...

def target_fields() -> list[tuple[str, str, str, float, float, str]]: ...
def cache_fields() -> list[tuple[str, str, str, float, float, str]]: ...
def part_fields() -> list[tuple[str, str, str, float, float, str]]: ...
def model_numbers() -> list[str]: ...
def vector_instructions() -> list[str]: ...
def transform_squares(results: int, apart: int) -> int: ...
def half_instructions() -> list[tuple[str, str]]: ...
def pipe_names() -> list[str]: ...
def host_target(cores: int, registers: tuple[int, int, int, int], machine: Machine) -> Target: ...
def measure_rates(cores: int, simd: str, machine: Machine) -> dict[str, float]: ...
def choose_windows(
    target: Target, image: tuple[int, int, int, int], results: int
) -> tuple[int, int, bool]: ...
def choose_block(target: Target, problem: Mapping[str, float]) -> dict[str, float]: ...
def choose_tile(target: Target, extents: Sequence[int], reduced: int) -> list[int]: ...

class PackedConstant:
    """What a builder packed, for others of programs that run together."""

class ModelBuilder:
    @overload
    def __init__(
        self, cores: int, simd: str, local_bytes: int, machine: Machine, spins: bool
    ) -> None: ...
    @overload
    def __init__(
        self, target: Target, part: NpuPart, queues: str, simd: str, machine: Machine
    ) -> None: ...
    @property
    def cores(self) -> int: ...
    def panel_columns(self, dtype: str) -> int: ...
    def set_dims(
        self, symbols: Sequence[str], instructions: Sequence[tuple[str, int, int]]
    ) -> None: ...
    def add_value(self, name: str, dtype: str, storage: str, shape: Sequence[int]) -> None: ...
    def set_constant(self, value: int, array: Array) -> None: ...
    def set_object(self, value: int, contents: object) -> None: ...
    def pack(
        self,
        value: int,
        array: Array,
        dtype: str,
        sizes: tuple[int, int, int],
        strides: tuple[int, int, int],
        offset: int,
        bundles: bool,
        transformed: int,
        mapped: bool,
    ) -> PackedConstant: ...
    def set_packed(self, value: int, packed: PackedConstant) -> None: ...
    def add_kernel(
        self,
        name: str,
        kind: str,
        extents: Sequence[int],
        nodes: Sequence[Record],
        accesses: Sequence[Record],
        matmul_axes: tuple[int, int, int, int],
        weighed: bool,
        origin: Sequence[str],
    ) -> int: ...
    def add_call(self, kernel: int, guard: int, fallback: Sequence[int]) -> int: ...
    def take_apart(self) -> None: ...
    def add_launch(self, calls: Sequence[int], follows: bool) -> None: ...
    def add_vendor(
        self,
        name: str,
        function: Callable[[list[Any], Any], list[Any]],
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> None: ...
    def add_control(
        self,
        name: str,
        bodies: Sequence[tuple[Program, Sequence[tuple[int, int]]]],
        inputs: Sequence[int],
        outputs: Sequence[int],
        turns: tuple[bool, int, int, int, Sequence[bool], Sequence[bool], int] | None,
        strands: int,
    ) -> None: ...
    def add_host(
        self,
        name: str,
        op: str,
        arguments: Sequence[int],
        words: Sequence[str | int],
        inputs: Sequence[int],
        outputs: Sequence[int],
        given: Sequence[bool],
        wanted: Sequence[bool],
    ) -> None: ...
    def add_dims_write(self, value: int, slots: Sequence[int]) -> None: ...
    def add_binding(self, symbol: int, value: int, axis: int, scale: int, shift: int) -> None: ...
    def add_check(self, condition: int, message: str) -> None: ...
    def set_ports(self, inputs: Sequence[int], outputs: Sequence[int]) -> None: ...
    def finish(self) -> Program: ...

class CeilingMeter:
    def __init__(self, cores: int, simd: str) -> None: ...
    def measure(self) -> tuple[float, float, float]: ...

def simd_levels() -> list[str]: ...
def built_levels() -> list[str]: ...
def bf16_levels() -> list[str]: ...

class StreamValue:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def rank(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def pending(self) -> bool: ...
    def numpy(self) -> Array: ...

class Stream:
    def __init__(
        self,
        cores: int,
        simd: str,
        local_bytes: int,
        machine: Machine,
        spins: bool,
        limits: object,
    ) -> None: ...
    def constant(self, array: Array, dtype: str = "") -> StreamValue: ...
    def constant_at(
        self, address: int, shape: Sequence[int], dtype: str, owner: object
    ) -> StreamValue: ...
    def append(
        self,
        op: str,
        operands: Sequence[StreamValue | bool | int | float],
        attrs: Sequence[int] = (),
        dtype: str = "",
    ) -> StreamValue: ...
    def supports(self, op: str, dtypes: Sequence[str]) -> bool: ...
    def flush(self) -> None: ...
    def record(self, on: bool) -> None: ...
    def take_record(self) -> list[dict[str, Any]]: ...
    @property
    def statistics(self) -> dict[str, int]: ...

def declare_operators(rows: Sequence[tuple[str, str, int, str, Sequence[str]]]) -> None: ...
