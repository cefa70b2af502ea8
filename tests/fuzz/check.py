"""Holds a case against its references: what is wrong with it, if anything."""

from __future__ import annotations

import enum
import functools
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
import onnx

import dvm_graph
from dvm_graph._core import simd_levels
from dvm_graph.decompose import block_quantized
from dvm_graph.pipeline import PASSES
from tests.fuzz.case import Case, Feeds
from tests.fuzz.judge import (
    Excuse,
    Reference,
    arrays_of,
    difference,
    explained,
    fails_optimised,
    longest,
    precision,
    refused_as_documented,
    varies_optimised,
)

SLOW_SECONDS = 4
"""Of processor time that the reference may take: what takes it longer is no hang where it does here, too."""
LARGE_BYTES = 64 << 20
"""Of the results of one run: to compare them takes several times as much."""


class Kind(enum.Enum):
    MISMATCH = "mismatch"
    SPECIAL = "mismatch on special values"
    REFUSED = "refused though onnxruntime runs it"
    FOREIGN = "foreign exception"
    UNSTABLE = "not the same bits again"
    HANG = "hang"
    CRASH = "crash"


class Phase(enum.IntEnum):
    """What a case is at, so that whoever watches knows whom to blame."""

    GENERATE = 0
    REFERENCE = 1
    OPTIMIZE = 2
    RUN = 3
    OTHERWISE = 4
    """Compiling and running in another way than the default."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    message: str
    operators: tuple[str, ...]
    variant: str = "default"
    environment: int = 0

    @property
    def signature(self) -> str:
        """What findings of one defect likely have in common."""
        plain = re.sub(
            r"'[^']*'|\"[^\"]*\"|-?\d[\d.e+-]*|[a-z]+\d+|\([^()]*\)|\[[^\]]*\]", "#", self.message
        )
        detail = "" if self.kind in (Kind.MISMATCH, Kind.SPECIAL) else plain[:80]
        return f"{self.kind.name} {' '.join(self.operators)} {detail}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """onnxruntime does not run it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Excused:
    """Right, though onnxruntime answers otherwise, and why that is."""

    excuses: frozenset[Excuse]


Report = Finding | Skipped | Excused | None


REFUSED_COPY = "no dim of 0 elements is to be copied"
"""A refusal that is documented (docs/edge_values.md): of a Reshape in which two dims of 0 meet."""

Variant: TypeAlias = tuple[str, dvm_graph.Options]


def variants(index: int) -> tuple[Variant, ...]:
    """Other ways to compile, of which a case takes one, by its number."""
    found = _variants()
    return (found[index % len(found)],)


def all_vendor(case: Case) -> tuple[Variant, ...]:
    """Every operator left to onnxruntime: a matter of what is inferred of results and bound at runs."""
    names = frozenset(node.name for node in case.model.graph.node)
    return (("all vendor", dvm_graph.Options(vendor_nodes=names, spin=False)),)


@functools.cache
def _variants() -> tuple[Variant, ...]:
    """Cores do not spin but in one of them: those of several jobs would take the processors from each other."""
    return tuple(
        (name, options if name == "spin=True" else replace(options, spin=False))
        for name, options in _all_variants()
    )


@functools.cache
def _device(
    cores: int | None, simd: str | None, local_bytes: int | None, spin: bool
) -> dvm_graph.Model:
    """A model that keeps a device, with its threads, for the cases behind this one."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Neg(x) }'
    model = onnx.parser.parse_model(text)
    options = dvm_graph.Options(cores=cores, simd=simd, local_bytes=local_bytes, spin=spin)
    return dvm_graph.optimize(model, options)


def _all_variants() -> tuple[Variant, ...]:
    limits = dvm_graph.FusionLimits
    return (
        ("spin=True", dvm_graph.Options(spin=True)),
        ("fuse=False", dvm_graph.Options(fuse=False)),
        ("stack=False", dvm_graph.Options(stack=False)),
        ("fallbacks=always", dvm_graph.Options(fallbacks="always")),
        ("fallbacks=operators", dvm_graph.Options(fallbacks="operators")),
        ("check=True", dvm_graph.Options(check=True)),
        ("cores=1", dvm_graph.Options(cores=1)),
        ("cores=3", dvm_graph.Options(cores=3)),
        ("local_bytes=16K", dvm_graph.Options(local_bytes=16 << 10)),
        ("local_bytes=48K", dvm_graph.Options(local_bytes=48 << 10)),
        ("small kernels", dvm_graph.Options(limits=limits(max_operators=4, max_accesses=3))),
        ("resident", dvm_graph.Options(limits=limits(weigh_resident=False))),
        ("not resident", dvm_graph.Options(limits=limits(row_resident=False))),
        ("recomputed", dvm_graph.Options(limits=limits(max_recomputed=0, max_epilogue=1))),
        *((f"simd={level}", dvm_graph.Options(simd=level)) for level in simd_levels()),
        *((f"no {name}", dvm_graph.Options(disable_passes=frozenset((name,)))) for name in PASSES),
        ("no passes", dvm_graph.Options(disable_passes=frozenset(PASSES))),
    )


def check(
    case: Case,
    others: Sequence[Variant] = (),
    phase: Callable[[Phase], None] = lambda _: None,
    rescue: bool = False,
) -> Report:
    """`rescue`: whether what the compiler fails at may run on onnxruntime, as models that are whole must not.

    The other ways take any weights of a MatMulNBits for many, which stay packed.
    """
    phase(Phase.REFERENCE)
    expected = _expected(case)
    if isinstance(expected, Skipped):
        return expected
    excuses: set[Excuse] = set()
    for name, options in (("default", dvm_graph.Options(spin=False)), *others):
        few = 0 if name != "default" else block_quantized.FEW_WEIGHTS
        with mock.patch.object(block_quantized, "FEW_WEIGHTS", few):
            found = _check_one(case, expected, options, phase, rescue, excuses)
        phase = functools.partial(_otherwise, phase)
        if found is not None:
            return replace(found, variant=name)
    return Excused(frozenset(excuses)) if excuses else None


def _otherwise(phase: Callable[[Phase], None], _: Phase) -> None:
    phase(Phase.OTHERWISE)


def _expected(case: Case) -> dict[int, list[Any]] | Skipped:
    """What onnxruntime gives, by environment."""
    try:
        reference = Reference(case.model)
    except Exception as error:
        return Skipped(f"load: {_first(error)}")
    results = {}
    reason = ""
    began = time.process_time()
    for index, feeds in enumerate(case.feeds):
        try:
            given = reference.run(feeds)
        except Exception as error:
            reason = f"run: {_first(error)}"
            continue
        if sum(array.nbytes for array in arrays_of(given)) > LARGE_BYTES:
            reason = "run: large results"
        else:
            results[index] = given
    if time.process_time() - began > SLOW_SECONDS:
        return Skipped("takes onnxruntime long")
    return results or Skipped(reason)


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]


def _check_one(
    case: Case,
    expected: dict[int, list[Any]],
    options: dvm_graph.Options,
    phase: Callable[[Phase], None],
    rescue: bool,
    excuses: set[Excuse],
) -> Finding | None:
    def found(kind: Kind, message: str, environment: int = 0) -> Finding:
        return Finding(kind, message, case.operators, environment=environment)

    phase(Phase.OPTIMIZE)
    _device(options.cores, options.simd, options.local_bytes, options.spin)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not rescue:
                warnings.simplefilter("error", dvm_graph.RescueWarning)
            model = dvm_graph.optimize(case.data, options)
    except dvm_graph.DvmError as error:
        asked = isinstance(error, dvm_graph.UnsupportedError)
        if asked and all(fails_optimised(case.model, case.feeds[index]) for index in expected):
            excuses.add(Excuse.VENDOR)
            return None
        return found(Kind.REFUSED, f"optimize: {type(error).__name__}: {error}")
    except Exception as error:
        return found(Kind.FOREIGN, f"optimize: {type(error).__name__}: {error}")
    phase(Phase.RUN)
    first: dict[int, list[Any]] = {}
    order = [*expected, next(iter(expected))]
    for index in order:
        try:
            results = model.run(case.feeds[index])
        except dvm_graph.DvmError as error:
            if REFUSED_COPY in str(error) or refused_as_documented(case.model, case.feeds[index]):
                excuses.add(Excuse.DOCUMENTED)
                continue
            if fails_optimised(case.model, case.feeds[index]):
                excuses.add(Excuse.VENDOR)
                continue
            return found(Kind.REFUSED, f"run: {type(error).__name__}: {error}", index)
        except Exception as error:
            return found(Kind.FOREIGN, f"run: {type(error).__name__}: {error}", index)
        if index in first:
            again = results, first[index]
            if not _same_bits(*again) and not explained(case, case.feeds[index], *again):
                if not varies_optimised(case.model, case.feeds[index]):
                    return found(Kind.UNSTABLE, "run again after other shapes", index)
                excuses.add(Excuse.VENDOR)
            continue
        first[index] = results
        wrong = compare(case, case.feeds[index], results, expected[index])
        if isinstance(wrong, Excuse):
            excuses.add(wrong)
        elif wrong is not None:
            return found(Kind.SPECIAL if case.special else Kind.MISMATCH, wrong, index)
    return None


def _same_bits(one: Sequence[Any], other: Sequence[Any]) -> bool:
    pairs = zip(arrays_of(one), arrays_of(other), strict=True)
    return all(
        a.tobytes() == b.tobytes() if a.dtype != object else bool(np.all(a == b)) for a, b in pairs
    )


def compare(
    case: Case, feeds: Feeds, mine: Sequence[Any], theirs: Sequence[Any]
) -> str | Excuse | None:
    """What is wrong with the results, or why a difference is right; None: there is none."""
    kind, terms = precision(case.model, feeds, theirs), longest(theirs, feeds, case.model)
    names = [value.name for value in case.model.graph.output]
    for name, a, b in zip(names, mine, theirs, strict=True):
        wrong = difference(a, b, kind, terms)
        if wrong is not None:
            return explained(case, feeds, mine, theirs) or f"{name}: {wrong}"
    return None
