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
    quantized: bool = False
    """Weights and activations are int8 behind `QuantizeLinear` and `DequantizeLinear` (`models.quantizing`)."""

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

ZOO: dict[str, Family] = {
    "mobilenet_v3": Family("classifiers:mobilenet_v3", _BOTH, "HardSwish, squeeze-and-excite"),
    "efficientnet": Family("classifiers:efficientnet", _BOTH, "SiLU, 5x5 depth-wise, gates"),
    "shufflenet": Family("classifiers:shufflenet", _BOTH, "channels split and shuffled"),
    "squeezenet": Family("classifiers:squeezenet", _BOTH, "concats, pools that round up"),
    "densenet": Family("classifiers:densenet", _BOTH, "growing concats, norms in front"),
    "inception": Family("classifiers:inception", _BOTH, "branches, oblong kernels"),
    "regnet": Family("classifiers:regnet", _BOTH, "grouped convolutions"),
    "yolo": Family("images:yolo", _BOTH, "three scales, resizing, concats, boxes"),
    "deeplab": Family("images:deeplab", _BOTH, "dilated convolutions, linear resizing"),
    "text_detector": Family("images:text_detector", _BOTH, "mobile blocks, resized sums"),
    "crnn": Family("images:crnn", _BOTH, "one channel, then an LSTM both ways"),
    "super_resolution": Family("images:super_resolution", _BOTH, "channels become pixels"),
    "fsrcnn": Family("images:fsrcnn", _BOTH, "one channel, PReLU, an odd transposed convolution"),
    "style_transfer": Family("images:style_transfer", _BOTH, "reflected pads, instance norms"),
    "conformer": Family("audio:conformer", _BOTH, "attention, convolutions along frames"),
    "wav2vec": Family("audio:wav2vec", _BOTH, "strided convolutions along samples"),
    "vad": Family("audio:vad", _BOTH, "an LSTM with its state as inputs and outputs"),
    "vocoder": Family("audio:vocoder", _BOTH, "transposed and dilated, one spatial axis"),
    "dlrm": Family("recommendation:dlrm", _BOTH, "26 tables, products in pairs"),
    "deepfm": Family("recommendation:deepfm", _BOTH, "one table, sums of squares"),
    "wide_deep": Family("recommendation:wide_deep", _BOTH, "hashed crosses beside a perceptron"),
    "swin": Family("windows:swin", _BOTH, "shifted windows"),
    "detr": Family("windows:detr", _BOTH, "places from extents, queries across an image"),
    "video": Family("volumes:video", _BOTH, "three spatial axes, strided"),
    "unet_3d": Family("volumes:unet_3d", _BOTH, "three spatial axes, up and down"),
    "resnet_int8": Family("convolutions:resnet", _BOTH, "QDQ residual convolutions", True),
    "mobilenet_v3_int8": Family("classifiers:mobilenet_v3", _BOTH, "QDQ gates, HardSwish", True),
    "yolo_int8": Family("images:yolo", _BOTH, "QDQ concats and resizing", True),
    "vit_int8": Family("encoders:vit", _BOTH, "QDQ attention", True),
}
"""Varied architectures, chosen for what people run and not for what runs well here."""

PROGRAMS: dict[str, Family] = {
    "rnn_loop": Family("programs:rnn_loop", _BOTH, "a recurrence as a `Loop` with a list"),
    "voice_stream": Family("programs:voice_stream", _BOTH, "an LSTM with state behind an `If`"),
    "beam_search": Family("programs:beam_search", _BOTH, "TopK in a `Loop` over growing texts"),
    "early_exit": Family("programs:early_exit", _BOTH, "layers that an `If` leaves out"),
}
"""Scripted modules, whose course only the run tells."""

MODELS = FAMILIES | ZOO | PROGRAMS


def family(name: str) -> Family:
    """The row called `name`; a `ValueError` lists the known names."""
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(MODELS)}")
    return MODELS[name]
