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
    "gpt2": Family("decoders:gpt2", _BOTH, "causal decoder with learned positions"),
    "vit": Family("encoders:vit", _BOTH, "patch convolution, then an encoder without a mask"),
    "llama": Family("decoders:llama", _BOTH, "RMSNorm, rotary positions, grouped-query heads"),
    "llama_decode": Family("decoders:llama_decode", _BOTH, "one token with a key/value cache"),
    "qwen3": Family("decoders:qwen3", _BOTH, "as Llama, with RMSNorm on queries and keys"),
    "qwen3_decode": Family("decoders:qwen3_decode", _BOTH, "one token with a key/value cache"),
    "mmoe": Family("recommendation:mmoe", _BOTH, "parallel experts, gates and towers"),
    "resnet": Family("convolutions:resnet", _BOTH, "residual convolutions, dynamic image size"),
    "mobilenet": Family("convolutions:mobilenet", _BOTH, "depth-wise separable convolutions"),
    "convnext": Family("convolutions:convnext", _BOTH, "depth-wise 7x7, LayerNorm, GELU"),
    "unet": Family("convolutions:unet", _BOTH, "transposed convolutions, resizing, joined images"),
    "if_else_add": Family("control_flow:if_else_add", _TINY_ONLY, "the paper's branch, as `If`"),
    "nonzero": Family("control_flow:nonzero", _TINY_ONLY, "a size that depends on data"),
}


def family(name: str) -> Family:
    """The row called `name`; a `ValueError` lists the known names."""
    if name not in FAMILIES:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]
