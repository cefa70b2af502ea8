"""Records: dataclasses with slots, frozen unless asked otherwise, whose classes are made in a fraction of the time.

The standard decorator compiles each method of each class by itself, and writes a signature where there is no
docstring. The compiler has over a hundred records, and making their classes was a fifth of loading it. Fields,
defaults, `replace`, `fields` and `asdict` are the standard library's, which sees dataclasses; only `__init__` is
compiled here, and it sets the slots of a frozen record without asking whether it may.

What it does not do: fields that are keywords only, classes that are ordered, or weak references.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[_T], _T]:
        return lambda decorator: decorator


_T = TypeVar("_T")


@overload
def record(made: type[_T]) -> type[_T]: ...
@overload
def record(*, frozen: bool = True, eq: bool = True) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(made: Any = None, *, frozen: bool = True, eq: bool = True) -> Any:
    """Makes a class a dataclass with slots.

    Args:
        made: the class; None: what is given says how.
        frozen: fields are set once. Records that may change have no hash, unless `eq` is False.
        eq: records of equal fields are equal; else each is equal to itself alone.
    """
    if made is None:
        return lambda made: _record(made, frozen, eq)
    return _record(made, frozen, eq)


def _record(made: type[Any], frozen: bool, eq: bool) -> type[Any]:
    made.__doc__ = made.__doc__ or made.__name__
    content = dict(dataclass(init=False, repr=False, eq=False)(made).__dict__)
    own = fields(made)
    inherited = {name for base in made.__mro__[1:] for name in getattr(base, "__slots__", ())}
    for name in ("__dict__", "__weakref__", *(part.name for part in own)):
        content.pop(name, None)
    content["__slots__"] = tuple(part.name for part in own if part.name not in inherited)
    content.setdefault("__repr__", _repr)
    if frozen:
        content.update(__setattr__=_refuse, __delattr__=_refuse)
        content.update(__getstate__=_get_state, __setstate__=_set_state)
    metaclass: Any = type(made)
    record = metaclass(made.__name__, made.__bases__, content)
    record.__qualname__ = made.__qualname__
    lines, known = _initialiser(record, own, frozen)
    if eq:
        lines += _comparison([part.name for part in own if part.compare])
    exec("\n".join(lines), known)
    for name in ("__init__", *(("__eq__", "__hash__") if eq else ())):
        if name == "__init__" or made.__dict__.get(name) is None:
            setattr(record, name, known[name])
    if eq and not frozen:
        record.__hash__ = None  # as Python has it of what may change
    made_anew: type[Any] = record
    return made_anew


def _initialiser(
    record: type[Any], own: Sequence[Field[Any]], frozen: bool
) -> tuple[list[str], dict[str, Any]]:
    """The text of `__init__`, and what it names."""
    known: dict[str, Any] = {"_missing": MISSING}
    parameters, body = ["self"], []
    for part in own:
        name = value = part.name
        if not part.init:
            continue
        if part.default is not MISSING:
            known[f"_default_{name}"] = part.default
            parameters.append(f"{name}=_default_{name}")
        elif part.default_factory is not MISSING:
            known[f"_make_{name}"] = part.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        else:
            parameters.append(name)
        if frozen:
            known[f"_set_{name}"] = getattr(record, name).__set__
        body.append(f" _set_{name}(self, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(record, "__post_init__"):
        body.append(" self.__post_init__()")
    return [f"def __init__({', '.join(parameters)}):", *(body or [" pass"])], known


def _comparison(names: Sequence[str]) -> list[str]:
    """The text of `__eq__` and `__hash__`."""
    mine, theirs = (
        f"({''.join(f'{owner}.{name}, ' for name in names)})" for owner in ("self", "other")
    )
    return [
        "def __eq__(self, other):",
        f" return {mine} == {theirs} if other.__class__ is self.__class__ else NotImplemented",
        "def __hash__(self):",
        f" return hash({mine})",
    ]


def _repr(self: Any) -> str:
    shown = ", ".join(f"{p.name}={getattr(self, p.name)!r}" for p in fields(self) if p.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse(self: Any, name: str, *_: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot change field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, part.name) for part in fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for part, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, part.name, value)
