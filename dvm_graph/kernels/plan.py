"""The plan of a model: what `lower_kernels` hands to `assemble`, and that to the C++ core.

The records of kernels have the fields of `kernels/plan.def`, and `kernels/plan.h` says what they mean; beside
them stand the steps of the executor. Everything is shape-generic: sizes are *dim slots*, indices into `ModelPlan.dims`, the
integer program that the executor evaluates once per run.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dvm_graph.ir import DType, Node, Value
from dvm_graph.ir.control import Turns
from dvm_graph.records import record
from dvm_graph.symbolic import DimTable
from dvm_graph.symbolic.transforms import ROWS

Slot: TypeAlias = int
NO_SLOT: Slot = -1

WINDOW_SIZES = (
    *("images", "depth", "height", "width", "pixel", "channels", "weights"),
    *("out_depth", "out_height", "out_width"),
    *("kernel_depth", "kernel_height", "kernel_width"),
    *("stride_depth", "stride_height", "stride_width"),
    *("dilation_depth", "dilation_height", "dilation_width"),
    *("pad_front", "pad_top", "pad_left"),
    "outside",
)
"""The sizes of a window over channels-last volumes, and what its taps outside of them are, where they are bytes that are
added up; of flat images, the depth is 1.
"""
PIXELS = ("images", "depth", "height", "width", "pixel")
"""The sizes whose product is the elements of the images."""
WEIGHTS = ("kernel_depth", "kernel_height", "kernel_width", "channels", "weights")
"""And that of the weights of a convolution of groups."""


@record(frozen=True, slots=True)
class Access:
    """An affine view of a value over the axes of a kernel's domain."""

    value: int
    strides: tuple[Slot, ...]
    offset: Slot = NO_SLOT
    packed_panels: bool = False
    block: int = 0
    block_bits: int = 0
    block_rows: int = 0
    transformed: bool = False
    """Behind the packed weights of 3 by 3 taps lie their transforms (`symbolic/transforms.py`); of others: packed in a run,
    they may get them.
    """


@record(frozen=True, slots=True)
class PlanNode:
    op: str
    dtype: DType
    axes: int
    inputs: tuple[int, ...] = ()
    access: int = -1
    reduce_axes: int = 0
    narrow_to: DType | None = None
    scalar: float = 0.0
    integer: int = 0
    limit: Slot = NO_SLOT
    offset: Slot = NO_SLOT
    strides: tuple[Slot, ...] = ()
    weights: int = -1
    """Of windows: index of the access of the weights; of a lookup: of its table."""
    window: tuple[Slot, ...] = ()
    """Of windows: one slot for each of `WINDOW_SIZES`."""
    element: DType | None = None
    """float16, bfloat16: what it stands for is a tensor of that dtype, which `dtype` holds more of; None: of any
    other."""

    @property
    def window_sizes(self) -> dict[str, Slot]:
        """`window` by name; of other operators nothing."""
        return dict(zip(WINDOW_SIZES, self.window, strict=True)) if self.window else {}


class KernelKind(enum.Enum):
    VECTOR = "vector"
    CUBE = "cube"
    MIX = "mix"


@record(frozen=True, slots=True)
class KernelPlan:
    """One meta-kernel."""

    name: str
    kind: KernelKind
    extents: tuple[Slot, ...]
    nodes: tuple[PlanNode, ...]
    accesses: tuple[Access, ...]
    m_axis: int = -1
    n_axis: int = -1
    k_axis: int = -1
    inner_k_axis: int = -1
    weighed: bool = False
    origin: tuple[str, ...] = ()
    """ONNX node names, for profiles and errors."""

    @property
    def stored(self) -> Iterator[int]:
        """The values that it writes, or parts of which."""
        return (self.accesses[node.access].value for node in self.nodes if node.op == "store")


@record(frozen=True, slots=True)
class KernelCall:
    """A kernel to launch, speculated or certain.

    `guard` is a slot whose value must be non-zero for `plan` to be valid (NO_SLOT: always valid).
    Where the guard fails, or the tile does not fit local memory, the `fallback` calls run instead,
    one after the other; where there is none, the plan is compiled operator by operator.
    """

    plan: KernelPlan
    guard: Slot = NO_SLOT
    fallback: tuple[KernelCall, ...] = ()

    def with_fallbacks(self) -> Iterator[KernelCall]:
        """The call, and those that may run instead."""
        yield self
        for call in self.fallback:
            yield from call.with_fallbacks()


@record(frozen=True, slots=True)
class LaunchStep:
    """One launch: stages one after the other (temporal stacking, a core barrier between), the calls
    of a stage side by side (spatial stacking).
    """

    stages: tuple[tuple[KernelCall, ...], ...]

    @property
    def calls(self) -> Iterator[KernelCall]:
        """Of all stages, without fallbacks."""
        return itertools.chain.from_iterable(self.stages)


@record(frozen=True, slots=True)
class VendorStep:
    """A maximal run of vendor operators, executed by onnxruntime."""

    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def name(self) -> str:
        """ONNX operators and the names of their nodes: "NonZero (find)"."""
        return describe_nodes(self.nodes)


@record(frozen=True, slots=True)
class BodyPlan:
    """A body of control flow: a plan of its own."""

    plan: ModelPlan
    dims: tuple[tuple[int, Slot], ...]
    """Its symbols that have their values from around it, and the slots of those."""


@record(frozen=True, slots=True)
class ControlStep:
    """An If, Loop or Scan; operands, results and those of the bodies are laid out as `ir.control` says."""

    node: Node
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bodies: tuple[BodyPlan, ...]
    turns: Turns | None
    """None: the bodies are branches."""
    strands: Slot
    """Of the body: the extent of axes whose elements have nothing to do with each other; NO_SLOT: nobody knows one."""

    @property
    def name(self) -> str:
        return describe_nodes((self.node,))


@record(frozen=True, slots=True)
class HostStep:
    """An operator that the host carries out (`runtime/host_ops`)."""

    node: Node
    inputs: tuple[int, ...]
    """Of the operands that are given."""
    outputs: tuple[int, ...]
    """Of the results that anybody reads."""
    given: tuple[bool, ...]
    wanted: tuple[bool, ...]

    @property
    def name(self) -> str:
        return describe_nodes((self.node,))


def describe_nodes(nodes: Sequence[Node]) -> str:
    """As a vendor call of theirs is named."""
    return ", ".join(f"{node.attrs.get('op', node.op)} ({' '.join(node.origin)})" for node in nodes)


@record(frozen=True, slots=True)
class DimsStep:
    """The host writes dims into an int64 value (row-major)."""

    value: int
    slots: tuple[Slot, ...]


Step: TypeAlias = LaunchStep | VendorStep | ControlStep | HostStep | DimsStep


def all_calls(steps: Iterable[Step]) -> Iterator[KernelCall]:
    """The calls of launches, fallbacks among them."""
    for step in steps:
        if isinstance(step, LaunchStep):
            for call in step.calls:
                yield from call.with_fallbacks()


class Storage(enum.Enum):
    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    PANELS = "panels"
    """A constant B operand, packed into panels at load; `panels` says from what."""
    ARENA = "arena"
    VENDOR = "vendor"
    """Result of a vendor operator, memory of onnxruntime, of a control-flow operator, or of one that the host
    carries out."""


FEW_COLUMNS = 4
"""Of a constant B whose columns cube units multiply by dot products."""
LEAST_DEPTH = 16
"""Of k for each of them: adding up the lanes takes time, too."""


def packed_rows(k: int, slices: int) -> int:
    """Of weights of so many rows, and behind them of the transforms of their slices, if there are any."""
    return k * ROWS if slices else k


@record(frozen=True, slots=True)
class Panels:
    """The constant that a PANELS value packs: B[batch, k, n] seen through strides in elements."""

    source: int
    batch: int
    k: int
    n: int
    strides: tuple[int, int, int]
    offset: int = 0
    bundles: bool = False
    """Two steps of k as bf16, or four of int8, side by side (vm/panels.h)."""
    transformed: int = 0
    """Slices of 3 by 3 taps that k is made of, behind which lie their transforms (`symbolic/transforms.py`); 0: there are none."""

    @property
    def rows(self) -> int:
        """Of what is packed."""
        return packed_rows(self.k, self.transformed)

    @property
    def are_columns(self) -> bool:
        """Few and long columns, which are multiplied by dot products: panels would be padding for the most part."""
        few = 0 < self.n <= FEW_COLUMNS and self.k >= LEAST_DEPTH * self.n
        return few and not self.bundles

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.source,)

    def over(self, number: Callable[[int], int]) -> Panels:
        """The same of a constant with another number."""
        return replace(self, source=number(self.source))


@record(frozen=True, slots=True)
class Blocks:
    """The constants that a PANELS value packs where levels of a few bits stand for B[k, n] (vm/panels.h)."""

    levels: int
    scales: int
    zeros: int
    """-1: the middle of the levels."""
    block: int
    """Steps of k for each scale."""
    bits: int
    """Of a level."""

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.levels, self.scales, *((self.zeros,) if self.zeros >= 0 else ()))

    @property
    def rows(self) -> int:
        """Of words that a block of a panel is: scales, zeros if there are any, and levels."""
        return 1 + (self.zeros >= 0) + self.block * self.bits // 32

    def over(self, number: Callable[[int], int]) -> Blocks:
        """The same of constants with other numbers."""
        zeros = -1 if self.zeros < 0 else number(self.zeros)
        return replace(self, levels=number(self.levels), scales=number(self.scales), zeros=zeros)


@record(frozen=True, slots=True)
class PlanValue:
    """A buffer of the model. Contiguous, row-major."""

    name: str
    dtype: DType
    shape: tuple[Slot, ...]
    storage: Storage
    constant: Value | None = None
    panels: Panels | Blocks | None = None
    opaque: bool = False
    """Kernels do not look at it (`Value.computable`); its shape counts for nothing."""
    element: DType | None = None
    """The dtype of the tensors in a sequence or optional value."""
    opaque_type: bytes = b""
    """As `Value.opaque_type`, of what is opaque."""


@record(frozen=True, slots=True)
class SymbolBinding:
    """Where a symbol gets its value: `symbol * scale + shift` is the extent of an axis of `value`, a
    model input or a result of a vendor operator.
    """

    symbol: int
    value: int
    axis: int
    scale: int = 1
    shift: int = 0


@record(frozen=True, slots=True)
class DimCheck:
    """An assumption of the compiler that each run confirms: `condition` must not be 0."""

    condition: Slot
    message: str


@dataclass(slots=True)
class ModelPlan:
    """The whole model. `inputs` and `outputs` index `values`, in the model's order. Every dim of a
    bound value is checked against its slot, so that contradicting inputs are errors.
    """

    dims: DimTable
    values: list[PlanValue] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    bindings: list[SymbolBinding] = field(default_factory=list)
    checks: list[DimCheck] = field(default_factory=list)
    inputs: Sequence[int] = ()
    outputs: Sequence[int] = ()
    given: Sequence[int] = ()
    """Of a body: the symbols whose values come from around it."""
    output_names: Sequence[str] = ()
    """What the model calls them, whatever the values are called."""
