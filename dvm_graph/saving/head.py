"""What the header of a saved model says, but for the calls of recipes, which go to the core as they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dvm_graph.description import Description
from dvm_graph.ir import DType
from dvm_graph.options import Options
from dvm_graph.runtime.program import Port
from dvm_graph.runtime.vendor_model import VendorResult


@dataclass(frozen=True, slots=True)
class Place:
    """Where something lies among the contents of the file."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Array:
    """A constant that is read as it lies."""

    value: int
    dtype: DType
    shape: tuple[int, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class PackedPanels:
    """A constant B operand, packed for a device whose panels have so many columns (vm/panels.h)."""

    value: int
    dtype: DType
    batch: int
    k: int
    n: int
    bundles: bool
    transformed: int
    """As in `Panels`."""
    columns: int
    place: Place


@dataclass(frozen=True, slots=True)
class PackedBlocks:
    """One in levels of a few bits, in so many blocks along k."""

    value: int
    n: int
    blocks: int
    columns: int
    place: Place


@dataclass(frozen=True, slots=True)
class Partition:
    """A vendor partition; its ONNX model is among the contents."""

    nodes: str
    inputs: tuple[str, ...]
    results: tuple[VendorResult, ...]
    foreign: Mapping[str, str]
    casts: tuple[str, ...]
    loops: bool
    optimise: bool
    quantized: bool
    model: Place


@dataclass(frozen=True, slots=True)
class Part:
    """A program: that of the model, or of a body of control flow in it."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arrays: tuple[Array, ...]
    panels: tuple[PackedPanels, ...]
    blocks: tuple[PackedBlocks, ...]
    partitions: tuple[Partition, ...]
    bodies: tuple[Part, ...]
    """Of its control flow, as the calls of its recipe number them."""


@dataclass(frozen=True, slots=True)
class Head:
    name: str
    """Of the model's file, for titles of pictures."""
    program: Part
    report: Place
    description: Description
    options: Options
