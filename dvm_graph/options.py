"""Options of the compiler: one table, with defaults, used by the Python API and the command line.

Values that make no sense are an `InputError` as soon as they are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any

from dvm_graph.errors import InputError

PRECISIONS = ("f32", "bf16")
"""Of the operands of matrix products."""


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
    """Such a kernel runs only where it is predicted to be faster than its fallback, for the sizes of
    the run; False: wherever it fits."""
    max_operand_width: int = 512
    """Elements of the B operands of two products in one kernel, per column of the first (attention:
    twice the size of a head): they are read again for each block of rows."""
    max_recomputed: int = 10
    """Operators of a producer that is computed again along axes only its consumer has."""
    max_parallel: int = 8
    """Kernels stacked side by side in one stage."""
    max_sequence: int = 64
    """Stages in one launch."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            _at_least(self, limit.name, 1 if limit.name in ("max_parallel", "max_sequence") else 0)


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
    """AI cores of the host device; None: as many as this process may use."""
    precision: str = "f32"
    """"bf16": matrix products and convolutions round their f32 operands to bfloat16 and add up in f32, on
    CPUs with AVX512-BF16; everything else stays f32. "f32": nothing is rounded."""
    simd: str | None = None
    """Instruction-set level of the host device; None: the best the CPU has."""
    local_bytes: int | None = None
    """Local memory of a core in bytes, at most 1 GiB; None: from the device."""
    check: bool = False
    """Hold every pass and every fused kernel to what its operators mean in float64, at small extents,
    and raise a `MiscompileError` that names the pass, or the kernel and its rules, where they differ."""
    dump: str = ""
    """Folder for one text dump per stage; also set by DVM_DUMP."""
    disable_passes: frozenset[str] = frozenset()
    """Graph passes to leave out, by name (`PASSES` in dvm_graph/pipeline.py)."""
    vendor_nodes: frozenset[str] = frozenset()
    """Names of ONNX nodes to leave to the vendor library, whether they can be compiled or not."""
    limits: FusionLimits = field(default_factory=FusionLimits)
    dim_hints: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Promised inclusive ranges of dims by name, checked at run time."""

    def __post_init__(self) -> None:
        for name in ("cores", "local_bytes"):
            if getattr(self, name) is not None:
                _at_least(self, name, 1)
        if self.local_bytes is not None and self.local_bytes > _MOST_LOCAL_BYTES:
            raise InputError(f"option local_bytes is {self.local_bytes}, but cannot exceed 1 GiB")
        if self.precision not in PRECISIONS:
            raise InputError(
                f"precision is {self.precision!r}, but has to be one of {', '.join(PRECISIONS)}"
            )
        if isinstance(self.disable_passes, str):
            raise InputError(f"disable_passes is a set of names, not {self.disable_passes!r}")
        if isinstance(self.vendor_nodes, str):
            raise InputError(f"vendor_nodes is a set of names, not {self.vendor_nodes!r}")
        object.__setattr__(self, "disable_passes", frozenset(self.disable_passes))
        object.__setattr__(self, "vendor_nodes", frozenset(self.vendor_nodes))
        for name, hint in self.dim_hints.items():
            if not _is_range(hint):
                raise InputError(
                    f"dim_hints say that {name} is in {hint!r}, but a range is (low, high), low first"
                )


_MOST_LOCAL_BYTES = 1 << 30
"""Local addresses of instructions have 30 bits (vm/isa.h)."""


def _is_range(hint: object) -> bool:
    return (
        isinstance(hint, tuple | list)
        and len(hint) == 2
        and all(isinstance(end, Integral) for end in hint)
        and 0 <= hint[0] <= hint[1]
    )


def _at_least(options: Any, name: str, least: int) -> None:
    value = getattr(options, name)
    if not isinstance(value, int) or value < least:
        raise InputError(f"option {name} is {value!r}, but has to be an integer of {least} or more")
