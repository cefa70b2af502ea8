"""Parts that are not at hand: a spec file (TOML) becomes what the compiler knows of a device, and what the
simulator knows of its times.

Every number has a value, a unit, sources by name and a confidence. Sections `target` and `costs` are the
rows of `vm/target.def`, `cycles` names vector instructions of `vm/isa.def`, `f16` and `bf16` those that the
vector unit does in that dtype, all others are the rows of `npu/simulator/part.def`. A file may stand on another one (`base = "ascend910b2"`) and name the
numbers that differ, with sources of its own. What is missing, unknown, absurd, in another unit or without a
source is an `InputError` that names the file and the field.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from dvm_graph import _core
from dvm_graph.errors import InputError
from dvm_graph.npu.machine import Field, read_toml

SPECS = Path(__file__).parent / "specs"
CONFIDENCES = ("high", "medium", "low")
_TARGET_SECTIONS = {"size": "target", "flag": "target", "cost": "costs"}
_CYCLES = "cycles"


@dataclass(frozen=True, slots=True)
class Entry:
    """A number of a spec."""

    value: float
    unit: str
    sources: tuple[str, ...]
    """Documents, in words."""
    confidence: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """A part, by what was published of it."""

    name: str
    numbers: Mapping[str, Entry]
    """By "section.name"."""
    target: _core.Target = field(init=False, repr=False, compare=False)
    """For the compiler."""
    part: _core.NpuPart = field(init=False, repr=False, compare=False)
    """For the simulator."""

    def __post_init__(self) -> None:
        sections = _by_section(self.numbers)
        arithmetic = {
            dtype: [name for name, does in sections.get(dtype, {}).items() if does]
            for dtype in _arithmetic()
        }
        cycles = sections.get(_CYCLES, {})
        target = _core.Target(sections["target"] | sections["costs"], arithmetic, cycles)
        object.__setattr__(self, "target", target)
        known = {name: self.numbers[name].value for name in _core.model_numbers()}
        object.__setattr__(self, "part", _core.NpuPart(self.name, known, cycles))

    def __getitem__(self, name: str) -> float:
        return self.numbers[name].value

    def changed(self, name: str, **numbers: float) -> Spec:
        """The part with other numbers, named with __ for the dot: `cores__cube=12`; what if?

        Raises:
            InputError: there is no such number, or it is out of bounds.
        """
        entries = dict(self.numbers)
        for key, value in numbers.items():
            dotted = key.replace("__", ".", 1)
            known = fields().get(dotted)
            if known is None:
                raise InputError(f"a part has no number {dotted!r}")
            if problem := known.problem(value):
                raise InputError(f"{dotted} is {problem}")
            entries[dotted] = Entry(value, known.unit, ("changed by hand",), "low")
        _check_whole(f"part {name!r}", entries)
        return Spec(name, entries)


@functools.cache
def fields() -> Mapping[str, Field]:
    """Every number that a spec may hold, by "section.name"."""
    found = [Field(*row) for row in _core.part_fields()]
    found += [Field(_TARGET_SECTIONS[row[0]], *row[1:]) for row in _core.target_fields()]
    meaning = "of the vector unit, for as many bytes of results as it gives in a cycle"
    found += [
        Field(_CYCLES, name, "cycles", 1e-3, 1e6, meaning) for name in _core.vector_instructions()
    ]
    found += [
        Field(dtype, name, "", 0, 1, f"the vector unit does it in {dtype}")
        for dtype, names in _arithmetic().items()
        for name in names
    ]
    return {f"{known.section}.{known.name}": known for known in found}


@functools.cache
def _arithmetic() -> Mapping[str, tuple[str, ...]]:
    """The vector instructions that a part may do in dtypes of 16 bits."""
    found: dict[str, tuple[str, ...]] = {}
    for dtype, name in _core.half_instructions():
        found[dtype] = (*found.get(dtype, ()), name)
    return found


def parts() -> tuple[str, ...]:
    """Names of the specs that come with the package."""
    return tuple(sorted(path.stem for path in SPECS.glob("*.toml")))


def find_spec(part: str | PathLike[str] | Spec) -> Spec:
    """A part by its name, or from a file.

    Raises:
        InputError: it is neither, or the file is wrong.
    """
    if isinstance(part, Spec):
        return part
    if str(part) in parts():
        return read_spec(SPECS / f"{part}.toml")
    if not os.path.isfile(part):  # noqa: PTH113 - Path raises where a name is too long for one
        raise InputError(
            f"npu is {str(part)!r}, but has to be a spec file, or one of {', '.join(parts())}"
        )
    return read_spec(Path(part))


@functools.cache
def read_spec(path: Path) -> Spec:
    """The part that a file describes.

    Raises:
        InputError: the file cannot be read, or a number is wrong.
    """
    numbers = _numbers(path)
    _check_whole(_named(path), numbers)
    return Spec(path.stem, numbers)


def _named(path: Path) -> str:
    return f"spec file {str(path)!r}"


def _numbers(path: Path) -> dict[str, Entry]:
    table = dict(read_toml(path, _named(path)))
    name, base = table.pop("name", None), table.pop("base", None)
    sources = table.pop("sources", {})
    if name != path.stem:
        raise InputError(
            f"{_named(path)}: name is {name!r}, but has to be {path.stem!r}, as the file's"
        )
    if not isinstance(sources, Mapping):
        raise InputError(f"{_named(path)}: sources has to be a table")
    numbers: dict[str, Entry] = {}
    if base is not None:
        if base not in parts() or base == name:
            raise InputError(
                f"{_named(path)}: base is {base!r}, but has to be one of {', '.join(parts())}"
            )
        numbers = _numbers(SPECS / f"{base}.toml")
    return numbers | dict(_entries(path, table, sources))


def _entries(
    path: Path, table: Mapping[str, Any], sources: Mapping[str, Any]
) -> Iterator[tuple[str, Entry]]:
    sections = {known.section for known in fields().values()}
    for section, rows in table.items():
        if section not in sections:
            raise InputError(f"{_named(path)}: unknown section {section!r}")
        if not isinstance(rows, Mapping):
            raise InputError(f"{_named(path)}: {section} has to be a table")
        for name, row in rows.items():
            yield f"{section}.{name}", _entry(path, f"{section}.{name}", row, sources)


def _entry(path: Path, name: str, row: Any, sources: Mapping[str, Any]) -> Entry:
    label = f"{_named(path)}: {name}"
    known = fields().get(name)
    if known is None:
        raise InputError(f"{label} is no number of a part; docs/npu.md lists them")
    if not isinstance(row, Mapping):
        raise InputError(f"{label} has to be a table with value, source and confidence")
    value: Any = row.get("value")
    if isinstance(value, bool) and known.unit == "":
        value = int(value)
    if problem := known.problem(value):
        raise InputError(f"{label} is {problem}")
    unit = row.get("unit", known.unit)
    if unit != known.unit:
        raise InputError(f"{label} is in {unit!r}, but has to be in {known.unit!r}")
    named = row.get("source")
    if not isinstance(named, list) or not named or not set(named) <= sources.keys():
        raise InputError(
            f"{label} has source {named!r}, but needs a list of names from the table of sources"
        )
    if row.get("confidence") not in CONFIDENCES:
        raise InputError(f"{label} needs a confidence: {', '.join(CONFIDENCES)}")
    unknown = row.keys() - {"value", "unit", "source", "confidence", "note"}
    if unknown:
        raise InputError(f"{label} has an unknown entry {min(unknown)!r}")
    texts = tuple(str(sources[source]) for source in named)
    return Entry(float(value), known.unit, texts, row["confidence"], str(row.get("note", "")))


def _check_whole(label: str, numbers: Mapping[str, Entry]) -> None:
    """What is wrong with numbers that are fine one by one."""
    optional = (_CYCLES, *_arithmetic())
    missing = [
        name for name in fields() if name not in numbers and name.split(".")[0] not in optional
    ]
    if missing:
        raise InputError(f"{label} has no {missing[0]}; docs/npu.md lists what a part needs")
    vector, cube = numbers["cores.vector"].value, numbers["cores.cube"].value
    if vector % cube:
        raise InputError(
            f"{label}: cores.vector is {vector:g}, which is no multiple of cores.cube, {cube:g}"
        )
    for known, cores in (("cores", "vector"), ("cube_cores", "cube")):
        compiled, part = numbers[f"target.{known}"].value, numbers[f"cores.{cores}"].value
        if compiled != part:
            raise InputError(
                f"{label}: target.{known} is {compiled:g}, but cores.{cores} is {part:g}"
            )
    _check_arithmetic(label, numbers)


def _check_arithmetic(label: str, numbers: Mapping[str, Entry]) -> None:
    """A part that computes in a dtype of 16 bits converts to f32 and back."""
    for dtype, names in _arithmetic().items():
        done = [name for name in names if (row := numbers.get(f"{dtype}.{name}")) and row.value]
        for cast in ("v_cast_to_f32", "v_cast_from_f32"):
            if done and cast not in done:
                raise InputError(f"{label} does {done[0]} in {dtype}, but has no {dtype}.{cast}")


def _by_section(numbers: Mapping[str, Entry]) -> dict[str, dict[str, float]]:
    sections: dict[str, dict[str, float]] = {}
    for dotted, entry in numbers.items():
        section, name = dotted.split(".", 1)
        sections.setdefault(section, {})[name] = entry.value
    return sections
