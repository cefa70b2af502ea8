"""Decoders from transformers: GPT-2, Llama and Qwen3, as prefill over a whole sequence or as a single-token step.

Inputs are a `Size`; outputs are `ExportCase`s with random weights drawn from torch's current seed. Base Llama and
Qwen3 keep realistic widths and grouped-query heads and have two layers, so that they fit a small machine. The
single-token step takes and returns the key/value cache as plain tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from models.case import ExportCase, InputKind, ModelInput, Size
from models.families.encoders import token_inputs

_TINY_GROUPED: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 512,
}


class DecodeStep(torch.nn.Module):
    """One token per row: [batch, 1] ids and a cache of `past_seq` positions in, logits and the longer cache out."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        past: list[torch.Tensor],
    ) -> tuple[torch.Tensor, ...]:
        """`past` holds a key and a value per layer, in turn, each [batch, heads, past_seq, head_dim]."""
        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        )
        present = [t for layer in cache.layers for t in (layer.keys, layer.values)]
        return (output.logits, *present)


def _llama(size: Size, *, use_cache: bool) -> LlamaForCausalLM:
    base = {
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "intermediate_size": 5632,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    }
    config = _TINY_GROUPED if size is Size.TINY else base
    return LlamaForCausalLM(LlamaConfig(**config, use_cache=use_cache))


def _qwen3(size: Size, *, use_cache: bool) -> Qwen3ForCausalLM:
    base = {
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 6144,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    }
    config = {**_TINY_GROUPED, "head_dim": 32} if size is Size.TINY else base
    return Qwen3ForCausalLM(Qwen3Config(**config, use_cache=use_cache))


def _prefill(model: PreTrainedModel) -> ExportCase:
    return ExportCase(model, token_inputs(model.config.vocab_size), ("logits",))


def gpt2(size: Size) -> ExportCase:
    """GPT-2 with language-model head; dims batch and seq."""
    tiny = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 512}
    tiny |= {"bos_token_id": 0, "eos_token_id": 1}
    config = GPT2Config(**(tiny if size is Size.TINY else {}), use_cache=False)
    return _prefill(GPT2LMHeadModel(config))


def llama(size: Size) -> ExportCase:
    """Llama with language-model head; dims batch and seq."""
    return _prefill(_llama(size, use_cache=False))


def qwen3(size: Size) -> ExportCase:
    """Qwen3 (RMSNorm on queries and keys) with language-model head; dims batch and seq."""
    return _prefill(_qwen3(size, use_cache=False))


def llama_decode(size: Size) -> ExportCase:
    """Single-token step of Llama; dims batch and past_seq."""
    return _decode(_llama(size, use_cache=True))


def qwen3_decode(size: Size) -> ExportCase:
    """Single-token step of Qwen3; dims batch and past_seq."""
    return _decode(_qwen3(size, use_cache=True))


def _decode(model: PreTrainedModel) -> ExportCase:
    config: PreTrainedConfig = model.config
    batch, past = 3, 7
    token = torch.ones(batch, 1, dtype=torch.int64)
    cache = torch.zeros(batch, config.num_key_value_heads, past, config.head_dim)
    inputs = [
        ModelInput("input_ids", token, {0: "batch"}, InputKind.TOKEN, str(config.vocab_size)),
        ModelInput(
            "attention_mask",
            torch.ones(batch, past + 1, dtype=torch.int64),
            {0: "batch", 1: "past_seq + 1"},
            InputKind.MASK,
        ),
        ModelInput("position_ids", token * past, {0: "batch"}, InputKind.POSITION, "past_seq"),
    ]
    outputs = ["logits"]
    for layer in range(config.num_hidden_layers):
        for part in ("key", "value"):
            axes = {0: "batch", 2: "past_seq"}
            inputs.append(ModelInput(f"past_{part}_{layer}", cache.clone(), axes, group="past"))
            outputs.append(f"present_{part}_{layer}")
    return ExportCase(DecodeStep(model), tuple(inputs), tuple(outputs))
