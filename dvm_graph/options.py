"""Options of the compiler: one table, with defaults, used by the Python API and the command line.

Values that make no sense are an `InputError` as soon as they are given.
"""

from __future__ import annotations

import difflib
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any

from dvm_graph.errors import InputError

PRECISIONS = ("f32", "stored", "bf16", "i8")
"""Of the operands of matrix products."""
QUEUES = ("in_order", "adversarial", "audited")
"""How the queues of a simulated part run."""
FALLBACKS = ("if_needed", "always", "operators")
"""When kernels give way to what runs where they cannot."""
_CHOICES = {"precision": PRECISIONS, "queues": QUEUES, "fallbacks": FALLBACKS}


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """Limits of the fusion patterns. Units: operators, unless said otherwise."""

    max_operators: int = 200
    """Basic operators in one fused subgraph."""
    max_accesses: int = 40
    """Distinct tensors one fused subgraph loads or stores."""
    max_epilogue: int = 40
    """Vector operators after a cube operator."""
    row_resident: bool = True
    """Reductions along the rows of a matrix product join its kernel, and so does what computes the
    rows that it reads (whole rows have to fit local memory, else a fallback runs)."""
    weigh_resident: bool = True
    """Such a kernel, or one of several products, runs only where it is predicted to be faster than its fallback, for
    the sizes of the run; False: wherever it fits."""
    max_operand_width: int = 512
    """Elements of the B operands of two products in one kernel, per column of the first (attention:
    twice the size of a head): they are read again for each block of rows."""
    max_products: int = 4
    """Matrix products of the same rows in one kernel, where operators behind them read them together (the gates of
    an LSTM); 1: each has a kernel of its own."""
    max_recomputed: int = 10
    """Operators of a producer that is computed again along axes only its consumer has."""
    max_parallel: int = 8
    """Kernels stacked side by side in one stage."""
    max_sequence: int = 64
    """Stages in one launch."""

    def __post_init__(self) -> None:
        _check_types(self)
        _check_least(self, dict.fromkeys(("max_parallel", "max_sequence"), 1))


@dataclass(frozen=True, slots=True)
class Options:
    """How a model is compiled and run."""

    strict: bool = False
    """Refuse models that need vendor operators."""
    fuse: bool = True
    """False: every basic operator is its own kernel (for comparison)."""
    stack: bool = True
    """False: every kernel is its own launch."""
    cores: int | None = None
    """AI cores of the host device, at most 8 for each that this process may use; None: as many as it may
    use, by its CPU affinity and the quotas of its control groups. As many runs of a model go on at a time, called
    from several threads, as there are such numbers of CPUs: with 1, one on each."""
    spin: bool = True
    """Idle cores look out for work for a millisecond before they sleep. False: they sleep at once, which
    leaves the CPUs to others, and small runs take longer."""
    precision: str = "f32"
    """"bf16": matrix products and convolutions round their f32 operands to bfloat16 and add up in f32, on
    CPUs with AVX512-BF16; everything else stays f32. "stored": matrix products whose operands both are bfloat16 do so, which
    takes nothing from them but subnormals, which are 0. "i8": products with weights of 2, 4 or 8 bits in blocks round what
    they multiply to bytes, each block by its largest element, as `accuracy_level` 4 has it. "f32": nothing is rounded
    but where the model allows it."""
    winograd: bool = True
    """Convolutions by 3 x 3 taps may take fewer multiplications, by way of transforms, where they are predicted to be faster;
    False: all are sums of products."""
    simd: str | None = None
    """Instruction-set level of the host device; None: the best the CPU has."""
    local_bytes: int | None = None
    """Local memory of a core in bytes, 4 KiB to 1 GiB; None: from the device."""
    device: str = ""
    """A simulated part that computes the values instead of the host, by the name of its spec or a file; "": the host.
    Slow: for what a part makes of numbers and of schedules. Such a model cannot be saved."""
    queues: str = "in_order"
    """Of a simulated part: "in_order" runs one instruction after the other, "adversarial" each of a core's queues as early
    or as late as flags permit, so that one that is missing gives wrong numbers; "audited" counts first, of each program, who
    would notice a flag that is missing (`Model.flags`)."""
    check: bool = False
    """Hold every pass and every fused kernel to what its operators mean in float64, at small extents,
    and raise a `MiscompileError` that names the pass, or the kernel and its rules, where they differ."""
    cache: str = ""
    """Folder of compiled models, which is made if need be: what was compiled before with the same options and the same
    dvm_graph is loaded from there (docs/saving.md). Also set by DVM_CACHE."""
    dump: str = ""
    """Folder for one text dump per stage; also set by DVM_DUMP."""
    disable_passes: frozenset[str] = frozenset()
    """Graph passes to leave out, by name (`PASSES` in dvm_graph/pipeline.py)."""
    vendor_nodes: frozenset[str] = frozenset()
    """Names of ONNX nodes to leave to the vendor library, whether they can be compiled or not. Those of constants alone run there while the model is compiled."""
    private_weights: bool = False
    """Read weights in files of their own (external data) into the memory of the process. False: large
    files stay mapped, so that processes share them; a run after somebody wrote to one is an error, and one that is cut
    short during a run ends the process (SIGBUS)."""
    fed_initializers: frozenset[str] = frozenset()
    """Initializers that the model declares as inputs as well, and that every run is fed instead."""
    dims_by_name: bool = True
    """Dims of inputs that have one name are equal, those of an expression are what it says, results whose rank
    nothing else tells have that which the model declares, and bodies that run on onnxruntime take and give the shapes that are declared for them. False: each is known by nothing but the run, as to onnxruntime.
    A run that contradicts what is declared compiles the model so, once."""
    scalar_ranks: Mapping[str, int] = field(default_factory=dict)
    """Ranks of inputs that the model declares to be scalars, by name; to onnxruntime such a declaration says nothing.
    A run that feeds something else compiles the model so, once."""
    limits: FusionLimits = field(default_factory=FusionLimits)
    fallbacks: str = "if_needed"
    """"always": kernels give way to their fallbacks, and those to theirs; "operators": kernels are compiled operator
    by operator, as they are where nothing else fits. For tests: the answers are the same, only slower."""
    dim_hints: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Promised inclusive ranges of dims by name, checked at run time."""

    max_compile_seconds: float = 3600.0
    """Compiling a model for longer is a `LimitError`."""
    max_compile_bytes: int | None = None
    """Memory that compiling a model may take beside its weights; None: what the machine has available and control
    groups leave to this process."""
    max_nodes: int = 2_000_000
    """ONNX nodes of a model, with calls of its functions replaced by their bodies."""

    def __post_init__(self) -> None:
        _check_types(self)
        _check_least(self, {"cores": 1, "local_bytes": _LEAST_LOCAL_BYTES, "max_nodes": 1})
        if self.local_bytes is not None and self.local_bytes > _MOST_LOCAL_BYTES:
            raise InputError(f"option local_bytes is {self.local_bytes}, but cannot exceed 1 GiB")
        for name, choice in _CHOICES.items():
            if (value := getattr(self, name)) not in choice:
                raise InputError(f"{name} is {value!r}, but has to be one of {', '.join(choice)}")
        for name in ("disable_passes", "vendor_nodes", "fed_initializers"):
            object.__setattr__(self, name, frozenset(getattr(self, name)))
        for name, hint in self.dim_hints.items():
            if not _is_range(hint):
                raise InputError(
                    f"dim_hints say that {name} is in {_short(hint)}, but a range is (low, high), low first"
                )
        hints = {name: (int(low), int(high)) for name, (low, high) in self.dim_hints.items()}
        object.__setattr__(self, "dim_hints", hints)
        object.__setattr__(self, "max_compile_seconds", float(self.max_compile_seconds))

    @property
    def transforms(self) -> bool:
        """Whether products of f32 patches may take transforms (`symbolic/transforms.py`), which only the host multiplies by."""
        return self.winograd and not self.device and self.precision != "bf16"

    @property
    def rounds_blocks(self) -> bool:
        """Whether products with weights of a few bits in blocks round what they multiply, whatever the model says."""
        return self.precision == "i8"

    def changed(self, fields: Mapping[str, Any]) -> Options:
        """A copy with other values of some fields.

        Raises:
            InputError: there is no such option, or the value makes no sense.
        """
        for name in fields:
            if name not in self.__slots__:
                nearest = difflib.get_close_matches(name, self.__slots__, 1, 0)
                raise InputError(f"no option {name!r}; did you mean {nearest[0]!r}?")
        return replace(self, **fields) if fields else self


_MOST_LOCAL_BYTES = 1 << 30
"""Local addresses of instructions have 30 bits (vm/isa.h)."""


_LEAST_LOCAL_BYTES = 4096
"""A page: with less there are kernels that fit in no way."""
_MOST = 2**63 - 1
_MOST_AXES = 64
"""Of an array of numpy."""


def _is_range(hint: Any) -> bool:
    return (
        isinstance(hint, tuple | list)
        and len(hint) == 2
        and all(map(_is_integer, hint))
        and 0 <= int(hint[0]) <= int(hint[1])
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) <= _MOST


def _is_duration(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= math.inf


def _are_names(value: object) -> bool:
    return (
        isinstance(value, Iterable)
        and not isinstance(value, str | bytes | Mapping)
        and all(isinstance(name, str) for name in value)
    )


def _are_named(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _are_numbered(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and _are_named(value)
        and all(_is_integer(number) and 0 <= number <= _MOST_AXES for number in value.values())
    )


_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (_is_integer, "an integer"),
    "float": (_is_duration, "a number of 0 or more"),
    "str": (lambda value: isinstance(value, str), "a string"),
    "frozenset[str]": (_are_names, "a set of names"),
    "Mapping[str, tuple[int, int]]": (_are_named, "a mapping of names to ranges"),
    "Mapping[str, int]": (_are_numbered, "a mapping of names to numbers of 0 to 64"),
    "FusionLimits": (lambda value: isinstance(value, FusionLimits), "FusionLimits"),
}
"""By the type that a field is declared to have: what holds of its values, and in words."""


def _check_types(options: Any) -> None:
    for option in fields(options):
        value = getattr(options, option.name)
        declared = str(option.type).removesuffix(" | None")
        if value is None and declared != option.type:
            continue
        holds, words = _TYPES[declared]
        if not holds(value):
            raise InputError(f"option {option.name} is {_short(value)}, but has to be {words}")
        if declared == "int":
            object.__setattr__(options, option.name, int(value))


def _check_least(options: Any, least: Mapping[str, int]) -> None:
    for option in fields(options):
        value, low = getattr(options, option.name), least.get(option.name, 0)
        if isinstance(value, int) and value < low:
            raise InputError(
                f"option {option.name} is {value}, but has to be an integer of {low} or more"
            )


def _short(value: object) -> str:
    """As `repr`, of values of any size."""
    return reprlib.repr(value)


DEFAULTS = Options()
"""What holds where nothing is asked for."""
