"""Encoders from transformers: BERT over token ids, ViT over images.

Inputs are a `Size`; outputs are `ExportCase`s with random weights drawn from torch's current seed. The attention
implementation is transformers' default (scaled dot product), which keeps batch and sequence symbolic.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import BertConfig, BertModel, ViTConfig, ViTForImageClassification

from models.case import ExportCase, InputKind, ModelInput, Size

_TINY: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
}


def token_inputs(vocabulary: int) -> tuple[ModelInput, ModelInput]:
    """`input_ids` and `attention_mask`, both [batch, seq] int64."""
    axes = {0: "batch", 1: "seq"}
    ids = torch.ones(3, 17, dtype=torch.int64)
    return (
        ModelInput("input_ids", ids, axes, InputKind.TOKEN, str(vocabulary)),
        ModelInput("attention_mask", ids.clone(), axes, InputKind.MASK),
    )


def bert(size: Size) -> ExportCase:
    """BERT encoder with pooler; dims batch and seq."""
    tiny = {**_TINY, "vocab_size": 512, "max_position_embeddings": 512}
    config = BertConfig(**(tiny if size is Size.TINY else {}))
    return ExportCase(
        BertModel(config), token_inputs(config.vocab_size), ("last_hidden_state", "pooler_output")
    )


def vit(size: Size) -> ExportCase:
    """ViT image classifier; dim batch."""
    tiny = {**_TINY, "image_size": 32, "patch_size": 8, "num_labels": 10}
    config = ViTConfig(**(tiny if size is Size.TINY else {"num_labels": 1000}))
    image = torch.zeros(3, config.num_channels, config.image_size, config.image_size)
    return ExportCase(
        ViTForImageClassification(config),
        (ModelInput("pixel_values", image, {0: "batch"}),),
        ("logits",),
    )
