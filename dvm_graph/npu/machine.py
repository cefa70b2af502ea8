"""The model of this machine: what its caches hold and what things cost on it, as data.

Out of three layers, each number with its source: the table of the CPU's family (`npu/specs/host`), the
sizes that the system says, and what `dvm-graph calibrate` measured for this CPU and user. `DVM_MACHINE`
names another family, whose numbers are then taken as they are, or a file of numbers that come before
all others. It changes how kernels are cut, never what they compute.

Numbers are bounded by `vm/target.def` and `npu/host/machine.def`. A user's file that is not is an
`InputError`; a file of measurements that is not is left out with a warning. Nothing is read before the
first model is compiled.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dvm_graph import _core
from dvm_graph.errors import InputError
from dvm_graph.npu import calibration
from dvm_graph.npu.cpu import Cpu, cache_sizes, this_cpu

SPECS = Path(__file__).parent / "specs" / "host"
VARIABLE = "DVM_MACHINE"
_INDEX = "families"
_PER_CYCLE = frozenset(
    (
        "vector_elements",
        "epilogue_elements",
        "pack_elements",
        "split_multiply_adds",
        "split_a_elements",
        "split_b_elements",
        "block_start",
        "run_start",
        "pass_start",
        "tile_start",
    )
)
"""Numbers that the clock of a core decides."""
_WHOLE = ("caches", "target", "cores", "memory")
"""Sections of whole numbers."""


class MachineWarning(UserWarning):
    """A file of measurements is of no use; the numbers of the CPU's family serve."""


@dataclass(frozen=True, slots=True)
class Field:
    """A number that a machine's table, or a part's spec, may hold."""

    section: str
    name: str
    unit: str
    least: float
    most: float
    meaning: str

    def problem(self, value: object) -> str:
        """What is wrong with a value; empty: nothing."""
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            return f"{value!r}, but has to be a number"
        if self.section in _WHOLE and value != int(value):
            return f"{value:g}, but has to be a whole number"
        if not self.least <= value <= self.most:
            return f"{value:g}, but has to lie between {self.least:g} and {self.most:g} {self.unit}"
        return ""


@functools.cache
def fields() -> Mapping[str, Field]:
    """Every number of a machine, by name."""
    sections = {"cache": "caches", "cost": "costs"}
    return {
        name: Field(sections[kind], name, unit, least, most, meaning)
        for kind, name, unit, least, most, meaning in (
            *_core.cache_fields(),
            *_core.target_fields(),
        )
        if kind in sections
    }


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's numbers, by the names of `fields`."""

    name: str
    numbers: Mapping[str, Number]
    core: _core.Machine = field(init=False, repr=False, compare=False)
    """As the C++ core has it."""

    def __post_init__(self) -> None:
        values = {name: number.value for name, number in self.numbers.items()}
        object.__setattr__(self, "core", _core.Machine(self.name, values))

    def over(self, name: str, numbers: Mapping[str, Number]) -> Machine:
        """These numbers where there are any, else those of this machine."""
        return replace(self, name=name, numbers={**self.numbers, **numbers})


def this_machine() -> Machine:
    """The machine that kernels are compiled for.

    Raises:
        InputError: `DVM_MACHINE` names neither a family nor a file of a machine's numbers.
    """
    return _machine(os.environ.get(VARIABLE, ""))


def families() -> tuple[str, ...]:
    """Names of the tables that come with the package."""
    return tuple(sorted(path.stem for path in SPECS.glob("*.toml") if path.stem != _INDEX))


@functools.cache
def family(name: str) -> Machine:
    """The table of a family."""
    return Machine(name, read_table(SPECS / f"{name}.toml"))


def family_and_table(cpu: Cpu) -> tuple[str, str] | None:
    """The family that a CPU is of, and the one whose table is for it; None: nobody knows it."""
    for name, row in _toml(SPECS / f"{_INDEX}.toml").items():
        ranges = row["models"] if row["vendor"] == cpu.vendor else ()
        if any(f == cpu.family and low <= cpu.model <= high for f, low, high in ranges):
            return str(name), str(row.get("table", name))
    return None


def table_of(cpu: Cpu) -> str:
    """The family whose table is for the CPU, or the generic one for the best level it has."""
    known = family_and_table(cpu)
    if known is not None:
        return known[1]
    generic = (f"generic-{level}" for level in _core.simd_levels())
    return next((name for name in generic if name in families()), "generic")


@functools.cache
def _machine(wanted: str) -> Machine:
    if wanted in families():
        return family(wanted)
    machine = _found()
    if not wanted:
        return machine
    path = Path(wanted)
    if not path.is_file():
        raise InputError(
            f"{VARIABLE} is {wanted!r}, but has to be a file, or one of {', '.join(families())}"
        )
    machine = machine.over(path.stem, read_table(path))
    if problem := _contradiction(machine):
        raise InputError(f"machine file {wanted!r}: {problem}")
    return machine


def calibrate_machine() -> tuple[Machine, Path]:
    """Measures this machine, and keeps the numbers for this user and CPU: a few seconds.

    What a core's clock decides and nothing measures is scaled with what the cube unit reaches. Returns
    the machine and the file.

    Raises:
        InputError: the numbers are absurd, or the file cannot be written; nothing is kept.
    """
    cpu, machine = this_cpu(), _described()
    cores, level = _core.available_cores(), _core.simd_levels()[0]
    measured = _core.measure_rates(cores, level, machine.core)
    for name, value in measured.items():
        if problem := fields()[name].problem(value):
            raise InputError(f"{name} was measured as {problem}; nothing is kept")
    try:
        path = calibration.store(cpu, measured)
    except OSError as error:
        raise InputError(f"cannot write {str(error.filename)!r}: {error.strerror}") from error
    except RuntimeError as error:
        raise InputError(f"cannot keep the numbers: {error}") from error
    _machine.cache_clear()
    return _with_measured(machine, measured), path


def _described() -> Machine:
    """By the table of its family and what the system says."""
    machine = family(table_of(this_cpu()))
    sizes = {
        name: Number(value, "the system")
        for name, value in cache_sizes().items()
        if not fields()[name].problem(value)
    }
    found = machine.over(machine.name, sizes)
    return machine if _contradiction(found) else found


def _contradiction(machine: Machine) -> str:
    """What is wrong with numbers that are fine one by one; empty: nothing."""
    names = ("first_bytes", "first_ways", "line_bytes")
    size, ways, line = (machine.numbers[name].value for name in names)
    if ways * line > size:
        return f"first_bytes is {size:g}, too few for first_ways * line_bytes = {ways * line:g}"
    return ""


def _with_measured(machine: Machine, measured: Mapping[str, float]) -> Machine:
    clock = measured["multiply_adds"] / machine.numbers["multiply_adds"].value
    numbers = {name: Number(value, "measured") for name, value in measured.items()}
    for name in _PER_CYCLE - measured.keys():
        number = machine.numbers[name]
        scaled = number.value / clock if fields()[name].unit == "s" else number.value * clock
        numbers[name] = Number(scaled, f"{number.source}, scaled with multiply_adds")
    return machine.over(f"{machine.name}, calibrated", numbers)


def _found() -> Machine:
    cpu, machine = this_cpu(), _described()
    try:
        measured = calibration.load(cpu)
        if measured is None:
            return machine
        for name, value in measured.items():
            _check(calibration.file_of(cpu), name, value)
        return _with_measured(machine, measured)
    except (InputError, KeyError, calibration.UnusableError) as error:
        warnings.warn(
            f"{error}; {machine.name} serves until `dvm-graph calibrate` has run again",
            MachineWarning,
            stacklevel=2,
        )
        return machine


def read_table(path: Path) -> dict[str, Number]:
    """The numbers of a table, those that it has.

    Raises:
        InputError: it is no table, or a number is unknown, absurd or in another unit.
    """
    numbers = {}
    for section, entries in _toml(path).items():
        if section in ("name", "sources"):
            continue
        if section not in {known.section for known in fields().values()}:
            raise InputError(f"machine file {str(path)!r}: unknown section {section!r}")
        if not isinstance(entries, Mapping):
            raise InputError(f"machine file {str(path)!r}: {section} has to be a table")
        for name, entry in entries.items():
            described = entry if isinstance(entry, Mapping) else {"value": entry}
            value: Any = described.get("value")
            _check(path, name, value, section, described)
            source = described.get("source", [])
            numbers[name] = Number(value, f"{path.name}{_named(path, source)}")
    return numbers


def _named(path: Path, source: Any) -> str:
    if not source:
        return ""
    if not isinstance(source, list) or not all(isinstance(name, str) for name in source):
        raise InputError(f"machine file {str(path)!r}: a source has to be a list of names")
    sources = _toml(path).get("sources", {})
    if not isinstance(sources, Mapping):
        raise InputError(f"machine file {str(path)!r}: sources has to be a table")
    return ": " + "; ".join(str(sources.get(name, name)) for name in source)


def _check(
    path: Path, name: str, value: object, section: str = "", entry: Mapping[str, Any] | None = None
) -> None:
    label = f"machine file {str(path)!r}: {section + '.' if section else ''}{name}"
    known = fields().get(name)
    if known is None or (section and known.section != section):
        raise InputError(f"{label} is no number of a machine; `dvm-graph machine` lists them")
    if problem := known.problem(value):
        raise InputError(f"{label} is {problem}")
    unit = known.unit if entry is None else entry.get("unit", known.unit)
    if unit != known.unit:
        raise InputError(f"{label} is in {unit!r}, but has to be in {known.unit}")


def _toml(path: Path) -> Mapping[str, Any]:
    return read_toml(path, f"machine file {str(path)!r}")


@functools.cache
def read_toml(path: Path, label: str) -> Mapping[str, Any]:
    """What a TOML file holds.

    Raises:
        InputError: it cannot be read; `label` says which.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{label} cannot be read: {error}") from error
    return table
