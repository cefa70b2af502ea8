"""Dataclasses as what JSON can hold, and back by the types of their fields.

In: frozen dataclasses of numbers, text, enums, tuples, sets and mappings of these, nested as they like.
Out: dicts and lists. `from_plain` checks what it reads: data of another shape is a `TypeError` or `ValueError`.
"""

from __future__ import annotations

import enum
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


def to_plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value) if f.init}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[_T], data: Any) -> _T:
    """What `to_plain` made of a value of this type."""
    return cast(_T, _read(kind, data))


def _read(kind: Any, data: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if is_dataclass(kind):
        return _read_dataclass(kind, data)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _read_union(arguments, data)
    if origin in (tuple, frozenset):
        _require(isinstance(data, list), data)
        if (len(arguments) == 2 and arguments[1] is ...) or origin is frozenset:
            return origin(_read(arguments[0], item) for item in data)
        return tuple(_read(k, item) for k, item in zip(arguments, data, strict=True))
    if origin is Mapping:
        _require(isinstance(data, dict), data)
        return {key: _read(arguments[1], item) for key, item in data.items()}
    if kind is float and type(data) is int:
        return float(data)
    _require(type(data) is kind, data)
    return data


def _read_dataclass(kind: Any, data: Any) -> Any:
    kinds = _field_kinds(kind)
    _require(isinstance(data, dict) and data.keys() == kinds.keys(), data)
    return kind(**{name: _read(inner, data[name]) for name, inner in kinds.items()})


@functools.cache
def _field_kinds(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass and their types, which Python evaluates from text."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


def _read_union(members: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in members:
        return None
    for member in members:
        try:
            return _read(member, data)
        except (TypeError, ValueError):
            continue
    raise ValueError(f"{data!r:.50} is none of {members}")


def _require(holds: bool, data: Any) -> None:
    if not holds:
        raise ValueError(f"{data!r:.50} is not what should stand here")
