"""What an exporter hands to the export command: a torch module and the description of its inputs.

Purpose: the one type shared by every family in `models.families` and by `models.export`.
Invariants: the order of `inputs` is the order of the module's `forward` parameters; `output_names` has one name
per tensor that `forward` returns, in flattened order.
Does not import torch at run time, so that `models.feeds` can use the input kinds without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

METADATA_PREFIX = "input_kind."
"""Key prefix in a model's `metadata_props`; the rest of the key is the input's name."""


class Size(Enum):
    """How large an export is: `TINY` is checked in, `BASE` has the widths people run."""

    TINY = "tiny"
    BASE = "base"


class InputKind(Enum):
    """Which values are valid for an input; decides how `random_feeds` draws them."""

    NORMAL = "normal"
    """Floating point, standard normal."""
    TOKEN = "token"
    """Integers in [0, argument)."""
    MASK = "mask"
    """0/1 integers along the last axis, each row starting with a 1."""
    POSITION = "position"
    """Consecutive integers along the last axis, from the value of the dim `argument` (or from 0)."""
    FLAG = "flag"
    """Booleans."""
    CHOICE = "choice"
    """Any of the integers that `argument` lists, with commas between them."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One graph input: its name, an example value, the names of its dynamic axes, and what is valid in it."""

    name: str
    example: torch.Tensor
    axes: Mapping[int, str]
    kind: InputKind = InputKind.NORMAL
    argument: str = ""
    group: str = ""
    """Name of the `forward` parameter that takes a list of such inputs; empty for a parameter of its own."""

    @property
    def metadata(self) -> str:
        """The input's kind as `metadata_props` stores it: `kind` or `kind:argument`."""
        return f"{self.kind.value}:{self.argument}" if self.argument else self.kind.value


@dataclass(frozen=True, slots=True)
class ExportCase:
    """A module with seeded random weights, ready to be exported."""

    module: torch.nn.Module
    inputs: tuple[ModelInput, ...]
    output_names: tuple[str, ...] = field(default=())
    scripted: bool = False
    """The module has control flow of its own: TorchScript's exporter keeps it."""

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of `forward` from one value per input, grouped inputs gathered into lists."""
        result: dict[str, Any] = {}
        for source in self.inputs:
            value = values[source.name]
            if source.group:
                result.setdefault(source.group, []).append(value)
            else:
                result[source.name] = value
        return result
