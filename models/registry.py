"""The table of exportable models: name to the function that builds it.

Functions are named by `module:function` and imported on use, so that listing names needs no torch.
Does not export anything; `models.export` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from models.case import ExportCase, Size


@dataclass(frozen=True, slots=True)
class Family:
    """One row of the table: where the builder is, which sizes it has, and what the model shows."""

    builder: str
    sizes: frozenset[Size]
    shows: str

    def build(self, size: Size) -> ExportCase:
        """Imports the builder's module (and torch with it) and builds the case."""
        module, function = self.builder.split(":")
        builder = getattr(import_module(f"models.families.{module}"), function)
        return cast(Callable[[Size], ExportCase], builder)(size)


_BOTH = frozenset(Size)
_TINY_ONLY = frozenset({Size.TINY})

FAMILIES: dict[str, Family] = {
    "bert": Family("encoders:bert", _BOTH, "encoder with attention mask, LayerNorm and GELU"),
    "vit": Family("encoders:vit", _BOTH, "patch convolution, then an encoder without a mask"),
}


def family(name: str) -> Family:
    """The row called `name`; a `ValueError` lists the known names."""
    if name not in FAMILIES:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]
