"""A vendor partition as data: what a session of onnxruntime is made of, and how its results are handed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dvm_graph.ir import DType


@dataclass(frozen=True, slots=True)
class VendorThreads:
    """Those of a session."""

    count: int
    spin: bool = False
    """Idle ones look out for work for a while before they sleep."""


@dataclass(frozen=True, slots=True)
class VendorResult:
    """A result of a partition, as the program that runs it sees it."""

    name: str
    dtype: DType
    computable: bool
    """Kernels may read it (`Value.computable`)."""


@dataclass(frozen=True, slots=True)
class VendorModel:
    """A partition as onnxruntime takes it."""

    nodes: str
    """Its operators and their nodes, for errors: "NonZero (find)"."""
    model: Callable[[], str | bytes]
    """The ONNX model, serialised or its path: asked for whenever a session is made."""
    inputs: tuple[str, ...]
    results: tuple[VendorResult, ...]
    foreign: Mapping[str, str] = field(default_factory=dict)
    """Results of types that numpy lacks, and the types as onnxruntime writes them."""
    casts: tuple[str, ...] = ()
    """Those that onnxruntime needed: "Compress (node): bfloat16 as float"."""
    loops: bool = False
    """A run may go on for ever."""
    optimise: bool = True
    """onnxruntime may rewrite the model."""
    quantized: bool = True
    """And what is quantised in it."""
