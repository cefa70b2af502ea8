"""Operators of onnxruntime's own that are drawn from a table: how their operands and results hang together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx import TensorProto

SOME = "some"


@dataclass(frozen=True, slots=True)
class Called:
    """One form of an operator. What is text is Python, of the extents of one environment.

    Operands and results are dims between spaces, by name: `...` are some leading ones, the same wherever they stand, `?`
    one that only runs tell, a list any number. A name with a `?` behind it may be left out: where the condition
    behind that does not hold, or by chance.
    """

    operands: Mapping[str, str | Sequence[str]]
    """Of several dims, one."""
    results: Mapping[str, str]
    extents: Mapping[str, Sequence[Any] | str | None] = field(default_factory=dict)
    """What letters are: one of several things, one that follows from others, or the extent of any dim: None, and `SOME` of
    one that is not empty.
    """
    attributes: Mapping[str, Sequence[Any] | str] = field(default_factory=dict)
    """One of several things, of which None leaves the attribute out, or one that follows from extents."""
    limits: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What operands lie from, and below."""
    made: Mapping[str, str] = field(default_factory=dict)
    """What operands hold, as extents decide."""
    positive: Sequence[str] = ()
    """Operands that are above 0."""
    same: Mapping[str, str] = field(default_factory=dict)
    """Which types are those that other names stand for."""
    types: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Those that a kernel takes of the ones that it lists, where it does not take all."""
    told: tuple[str, Mapping[Any, int]] | None = None
    """The attribute that says what type the results are of."""


FLOAT, FLOAT16, BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
INT32, UINT32, INT64 = TensorProto.INT32, TensorProto.UINT32, TensorProto.INT64
_UNFOLDED = (FLOAT, TensorProto.DOUBLE, INT64, INT32)

_LSTM_EXTENTS: dict[str, Any] = {
    "t": SOME, "b": SOME, "i": (1, 4), "h": (1, 3),
    "d": ("forward", "reverse", "bidirectional"), "n": "2 if d == 'bidirectional' else 1",
    "f": ("Sigmoid", "Sigmoid", "HardSigmoid"),
}  # fmt: skip
_LSTM_OPERANDS = {
    "X": "t b i", "B?": "n 8*h", "sequence_lens?": "b", "initial_h?": "n b h",
    "initial_c?": "n b h", "P?": "n 3*h",
}  # fmt: skip
_LSTM_RESULTS = {"Y": "t n b h", "Y_h?": "n b h", "Y_c?": "n b h"}
_LSTM_ATTRIBUTES: dict[str, Any] = {
    "hidden_size": "h",
    "direction": "d",
    "input_forget": (None, 0, 1),
    "clip": (None, None, 0.5),
    "activations": "[f, 'Tanh', 'Tanh'] * n",
    "activation_alpha": "[0.2] * n if f == 'HardSigmoid' else None",
    "activation_beta": "[0.5] * n if f == 'HardSigmoid' else None",
}

_EXPERTS: dict[str, Any] = {
    "n": None, "e": (2, 4), "h": (8, 16), "i": (4, 8),
    "f": ("relu", "gelu", "silu", "identity", "swiglu"), "s": "2 if f == 'swiglu' else 1",
}  # fmt: skip
_ROUTED: dict[str, Any] = {
    "k": (None, 1, 2),
    "activation_type": "f",
    "activation_alpha": (None, 1.5),
    "activation_beta": (None, 1.0),
    "normalize_routing_weights": (None, 0, 1),
    "swiglu_fusion": "1 if f == 'swiglu' else 0",
    "swiglu_limit": (None, 2.0),
    "use_sparse_mixer": (None, 0),
}

CALLED: dict[str, Sequence[Called]] = {
    "AttnLSTM": [
        Called(
            _LSTM_OPERANDS
            | {
                "W": "n 4*h i+w", "R": "n 4*h h",
                "QW": "n h q", "MW": "n m q", "V": "n q", "M": "b s m",
                "memory_seq_lens?": "b", "AW?u": "n m+h a",
            },
            _LSTM_RESULTS,
            _LSTM_EXTENTS | {"q": (2, 3), "m": (1, 4), "s": (1, 5), "a": (2, 3), "u": (0, 1), "w": "a if u else m"},
            _LSTM_ATTRIBUTES,
            {"sequence_lens": ("1", "t + 1"), "memory_seq_lens": ("1", "s + 1")},
            types={"T": (FLOAT,)},
        )
    ],
    "BifurcationDetector": [
        Called(
            {
                "src_tokens": "s", "cur_tokens": "c", "prev_suffix_match_idx": "",
                "pred_tokens?": "s+1-p",
            },
            {"tokens": "?", "suffix_match_idx": ""},
            {"s": (4, 7), "c": None, "p": (0, 2)},
            {"min_ngram_size": (None, 1, 2), "max_ngram_size": (None, 3)},
            made={"prev_suffix_match_idx": "p"},
        )
    ],
    "BranchwiseRMSNorm": [
        Called(
            {"X": "... c h", "scale?": ("c h", "h", "c*h")},
            {"Y": "... c h"},
            {"c": SOME, "h": SOME},
            {"num_branches": (None, 0), "epsilon": (None, 0.1)},
        ),
        Called(
            {"X": "... c*h", "scale?": ("c h", "h", "c*h")},
            {"Y": "... c*h"},
            {"c": (1, 2, 3), "h": SOME},
            {"num_branches": "c"},
        ),
    ],
    "CDist": [
        Called(
            {"A": "m n", "B": "k n"},
            {"C": "m k"},
            {"m": None, "n": SOME, "k": None},
            {"metric": (None, "euclidean", "sqeuclidean")},
        )
    ],
    "CausalConvWithState": [
        Called(
            {"input": "b c l", "weight": "c 1 k", "bias?": "c", "past_state?": "b c (k-1)*d"},
            {"output": "b c l", "present_state": "b c (k-1)*d"},
            {"b": None, "c": (1, 3), "l": None, "k": (1, 2, 4), "d": (1, 1, 2)},
            {
                "dilation": "d", "state_window": (None, 0), "ndim": (None, 1),
                "activation": (None, "none", "silu", "swish"),
            },
        ),
        Called(
            {"input": "b l c", "weight": "c 1 k", "bias?": "c", "past_state?": "b (k-1)*d c"},
            {"output": "b l c", "present_state": "b (k-1)*d c"},
            {"b": None, "c": (1, 3), "l": None, "k": (1, 2, 4), "d": (1, 2)},
            {"dilation": "d", "channels_last": (1,)},
        ),
    ],
    "ConvTransposeWithDynamicPads": [
        Called(
            {"X": "n g*i y x", "W": "g*i o k k", "Pads": "4", "B?": "g*o"},
            {
                "Y": "n g*o (y-1)*s+(k-1)*d+1+q-2*z (x-1)*s+(k-1)*d+1+q-2*z",
            },
            {
                "n": None, "y": None, "x": None, "g": (1, 2), "i": (1, 2), "o": (1, 3), "k": (1, 2, 3),
                "s": (1, 2), "d": (1, 2), "q": "s - 1", "p": (0, 1), "z": "min(p, k - 1)",
            },
            {
                "kernel_shape": "[k, k]", "strides": "[s, s]", "dilations": "[d, d]", "group": "g",
                "output_padding": "[q, q]", "auto_pad": (None, "NOTSET"),
            },
            made={"Pads": "[z] * 4"},
        )
    ],
    "CropAndResize": [
        Called(
            {"X": "n c y x", "rois": "r 4", "batch_indices": "r", "crop_size": "2"},
            {"Y": "r c p q"},
            {"n": (1, 2), "c": None, "y": None, "x": None, "r": None, "p": (1, 3), "q": (1, 2)},
            {"mode": (None, "bilinear", "nearest"), "extrapolation_value": (None, 0.5)},
            {"batch_indices": ("0", "n")},
            {"crop_size": "[p, q]"},
        )
    ],
    "DecoderMaskedMultiHeadAttention": [
        Called(
            {
                "query": "b 1 h*d", "key": "b 1 h*d", "value": "b 1 h*d", "mask_index?": "b p+1",
                "attention_bias?": "1 h 1 p+1", "past_key": "b h m d", "past_value": "b h m d",
                "past_sequence_length": "1", "beam_width?w": "1", "cache_indirection?w": "b 1 m", "bias?": "3*h*d",
            },
            {"output": "b 1 h*d", "present_key": "b h m d", "present_value": "b h m d", "qk?o": "b h 1 p+1"},
            {"b": (1, 2), "h": (1, 2), "d": (4, 8), "p": (0, 3), "m": (8,), "o": (0, 1), "w": (0, 1)},
            {
                "num_heads": "h", "scale": (None, 0.5), "mask_filter_value": (None, -1000.0),
                "output_qk": "o or None", "past_present_share_buffer": (1,),
            },
            {"mask_index": ("0", "2"), "cache_indirection": ("0", "1")},
            {"past_sequence_length": "[p]", "beam_width": "[1]"},
        ),
        Called(
            {"query": "b 1 h*d", "key": "b h s d", "value": "b h s d", "mask_index?": "b s", "bias?": "3*h*d"},
            {"output": "b 1 h*d", "qk?o": "b h 1 s"},
            {"b": (1, 2), "h": (1, 2), "d": (4, 8), "s": SOME, "o": (0, 1)},
            {"num_heads": "h", "output_qk": "o or None"},
            {"mask_index": ("0", "2")},
        ),
    ],
    "DynamicQuantizeLSTM": [
        Called(
            _LSTM_OPERANDS
            | {
                "W": "n i 4*h", "R": "n h 4*h", "W_scale": "n [4*h]*c", "W_zero_point": "n [4*h]*c",
                "R_scale": "n [4*h]*c", "R_zero_point": "n [4*h]*c",
            },
            _LSTM_RESULTS,
            _LSTM_EXTENTS | {"c": (0, 1)},
            _LSTM_ATTRIBUTES,
            {"sequence_lens": ("1", "t + 1"), "W_zero_point": ("0", "1"), "R_zero_point": ("0", "1")},
            positive=("W_scale", "R_scale"),
        )
    ],
    "DynamicTimeWarping": [
        Called({"input": ("m n", "1 m n")}, {"output": "2 ?"}, {"m": None, "n": None})
    ],
    "EngramGate": [
        Called(
            {
                "key": "b s c h", "query": "b s c h", "value": "b s h", "key_norm_scale": "c h",
                "query_norm_scale": "c h", "conv_norm_scale?f": "c h",
            },
            {"output": "b s c h", "gated_value_normed?f": "b s c h"},
            {"b": None, "s": None, "c": (1, 2), "h": (1, 5), "f": (0, 1)},
            {"epsilon": (None, 0.1)},
        )
    ],
    "GatedAdd": [
        Called({"X": "... c", "Y": "... c", "gate": "... 1"}, {"output": "... c"}, {"c": SOME})
    ],
    "GatedDeltaNet": [
        Called(
            {
                "query": "n h d", "key": "n h d", "value": "n h*r v", "cu_seqlens": "b+1",
                "decay?u[:5]=='gated'": "n h*r [d]*p", "beta?u[-5:]=='delta'": "n h*r",
                "initial_state?": "b h*r v d", "a_log?a!='none'": "h*r",
                "dt_bias?a!='none'": ("h*r", "h*r [d]*p", "h*r*d**p"),
                "capture_count?c": "b", "state_update_active?c": "1",
            },
            {
                "output": "n h*r v", "final_state?": "b h*r v d",
                "state_update?c": "b c*(h*r*d**p+h*d+h*r*v)",
            },
            {
                "b": (1, 2), "n": "3 * b", "h": (1, 2), "r": (1, 2), "d": (4, 8), "v": (4, 8), "p": (0, 1),
                "u": ("gated_delta", "gated", "delta", "linear"),
                "a": ("none", "softplus", "sigmoid", "kda"), "c": (0, 0, 2),
            },
            {
                "update_rule": "u", "gate_activation": "a", "beta_activation": (None, "none", "sigmoid"),
                "qk_l2_norm": (None, 0, 1), "scale": (None, 0.5), "chunk_size": (None, 32),
                "gate_lower_bound": (None, -2.0), "state_update_capacity": "c or None",
            },
            {"capture_count": ("3", "4"), "state_update_active": ("0", "2")},
            {"cu_seqlens": "[0, 3, 6][: b + 1]"},
            same={"TG": "T"},
        ),
        Called(
            {
                "query": "b n 2*h*d+h*v", "decay": "b n h", "beta": "b n h", "initial_state": "b h v d",
            },
            {"output": "b n h v", "final_state?": "b h v d"},
            {"b": (1, 2), "n": None, "h": (1, 2), "d": (4, 8), "v": (4, 8)},
            {"qk_l2_norm": (1,)},
            same={"TG": "T"},
        ),
    ],
    "GatedRMSNorm": [
        Called(
            {"X": "... h*c", "scale": "c", "gate": "... h*c"},
            {"Y": "... h*c"},
            {"h": (1, 2, 3), "c": SOME},
            {"activation": (None, "silu", "swish", "sigmoid"), "epsilon": (None, 0.1)},
        )
    ],
    "GatherPacked": [
        Called(
            {"data": "v z[1]", "indices": "..."},
            {"output": "... 32"},
            {"v": (3, 8), "z": ((1, 64), (2, 18), (8, 34), (30, 64))},
            {"packed_type": "z[0]", "K": (32,), "output_dtype": (None, FLOAT, FLOAT16, BFLOAT16)},
            {"data": ("48", "64"), "indices": ("0", "v")},
            told=("output_dtype", {None: BFLOAT16, FLOAT: FLOAT, FLOAT16: FLOAT16, BFLOAT16: BFLOAT16}),
        )
    ],
    "HyperConnectionPostMix": [
        Called(
            {"streams": "... c h", "block_output": "... h", "post_mix": ("... c", "... c 1", "... c h"), "stream_mix?": "... c c"},
            {"output": "... c h"},
            {"c": (2, 3), "h": SOME},
            {"num_branches": (None, 0)},
        ),
        Called(
            {"streams": "... c*h", "block_output": "... h", "post_mix": ("... c", "... c 1", "... c h"), "stream_mix?": "... c c"},
            {"output": "... c*h"},
            {"c": (2, 3), "h": SOME},
            {"num_branches": "c"},
        ),
    ],
    "HyperConnectionPreMix": [
        Called(
            {"streams": "... c h", "pre_mix": ("... c", "... c 1", "... c h")},
            {"output": "... h"},
            {"c": (2, 3), "h": SOME},
            {"num_branches": (None, 0), "reduction_scale": (None, 0.5)},
        ),
        Called(
            {"streams": "... c*h", "pre_mix": ("... c", "... c h", "... c*h")},
            {"output": "... h"},
            {"c": (2, 3), "h": SOME},
            {"num_branches": "c"},
        ),
    ],
    "LinearAttention": [
        Called(
            {
                "query": "b t q*d", "key": "b t h*d", "value": "b t h*v",
                "past_state?": "b h d v",
                "decay?u[:5]=='gated'": ("b t h", "b t h*d"), "beta?u[-5:]=='delta'": ("b t h", "b t 1"),
            },
            {"output": "b t q*v", "present_state": "b h d v"},
            {
                "b": None, "t": None, "h": (1, 2), "q": "h * 2", "d": (4,), "v": (4, 8),
                "u": ("gated_delta", "gated", "delta", "linear"),
            },
            {
                "q_num_heads": "q", "kv_num_heads": "h", "update_rule": "u", "scale": (None, 0.5),
                "chunk_size": (None, 1), "state_window": (None, 0),
            },
        )
    ],
    "LinearAttentionGate": [
        Called(
            {"a": "b t h", "dt_bias": "h", "decay_scale": "h", "b?f": "b t h"},
            {"decay": "b t h", "beta?f": "b t h"},
            {"b": None, "t": None, "h": SOME, "f": (0, 1)},
        )
    ],
    "MRotaryEmbedding": [
        Called(
            {
                "input": "b s h*d", "position_ids": "3 b s", "cos_cache": "p d//2", "sin_cache": "p d//2",
            },
            {"output": "b s h*d"},
            {"b": None, "s": None, "h": (1, 2), "d": (8,), "p": (40,)},
            {
                "mrope_section": ([4, 0, 0], [2, 1, 1]), "mrope_layout": (None, 0, 1), "num_heads": "h",
                "interleaved": (None, 0, 1), "scale": (None, 1.0), "is_packed_batching": (None, 0),
            },
            {"position_ids": ("0", "p")},
        ),
        Called(
            {
                "input": "b h s d", "position_ids": "3 b s", "cos_cache": "p d//4", "sin_cache": "p d//4",
            },
            {"output": "b h s d"},
            {"b": None, "s": None, "h": (1, 2), "d": (16,), "p": (40,)},
            {
                "mrope_section": ([4, 0, 0], [2, 1, 1]), "num_heads": "h", "rotary_embedding_dim": "d // 2",
            },
            {"position_ids": ("0", "p")},
        ),
    ],
    "MatMulBnb4": [
        Called(
            {"A": "... k", "B": "(n*k+1)//2", "absmax": "(n*k+s-1)//s"},
            {"Y": "... n"},
            {"n": (1, 5, 16), "k": (8, 32, 64), "s": (16, 64)},
            {
                "N": "n", "K": "k", "block_size": "s", "quant_type": (0, 1), "transB": (None, 1),
                "training_mode": (None, 0, 1),
            },
            {"B": ("0", "256")},
        )
    ],
    "MatMulFpQ4": [
        Called(
            {"A": "... m k", "B": "n*k//32*(20+q)", "B_shape": "2"},
            {"Y": "... m n"},
            {"m": None, "n": (1, 5, 16), "k": (32, 64), "q": (0, 1)},
            {"blk_quant_type": "q"},
            {"B": ("56", "64")},
            {"B_shape": "[k, n]"},
        )
    ],
    "MatMulInteger16": [
        Called({"A": "... m k", "B": "k n"}, {"Y": "... m n"}, {"m": None, "n": None, "k": None})
    ],
    "MaxpoolWithMask": [
        Called(
            {"X": "n c y x", "M": "n c y x"},
            {"Y": "n c (y+2*p-k)//s+1 (x+2*p-k)//s+1"},
            {"n": None, "c": SOME, "y": SOME, "x": SOME, "k": (1, 2, 3), "p": "min(1, k - 1)", "s": (1, 2)},
            {
                "kernel_shape": "[k, k]", "pads": "[p] * 4", "strides": "[s, s]",
                "auto_pad": (None, "NOTSET"), "storage_order": (None, 0),
            },
            {"M": ("0", "2")},
        )
    ],
    "MoE": [
        Called(
            {
                "input": "n h", "router_probs": "n e", "fc1_experts_weights": "e s*i h",
                "fc1_experts_bias?": "e s*i", "fc2_experts_weights": "e h i", "fc2_experts_bias?": "e h",
            },
            {"output": "n h"},
            _EXPERTS,
            _ROUTED,
        ),
    ],
    "MoEGroupRouter": [
        Called(
            {"logits": "n [m]*l e", "expert_bias": "e"},
            {"router_probs": "n*m**l e"},
            {"n": None, "m": None, "l": (0, 1), "e": (4, 8)},
            {
                "top_k": (1, 2), "n_group": (None, 1, 2), "topk_group": (None, 1), "group_topk": (None, 1, 2),
                "router_sentinel": (None, -100.0),
            },
        ),
        Called(
            {"logits": "n e", "expert_bias": "e"},
            {"selection_scores": "n e", "router_weights": "n e"},
            {"n": None, "e": (4, 8)},
            {"top_k": (1, 2)},
        ),
        Called(
            {"logits": "n 256", "expert_bias": "e", "projection_weight": "e 256"},
            {"selection_scores": "n e", "router_weights": "n e"},
            {"n": None, "e": (4, 8)},
            {"top_k": (1, 2)},
        ),
    ],
    "MurmurHash3": [
        Called(
            {"X": "..."},
            {"Y": "..."},
            {},
            {"positive": (None, 0, 1), "seed": (None, 3)},
            told=("positive", {None: UINT32, 1: UINT32, 0: INT32}),
        )
    ],
    "NGramHashMapping": [
        Called(
            {
                "input_ids": "b s", "multipliers": "3", "vocab_sizes": "2*h", "past_ids?": "b 2",
                "head_offsets?": "2*h", "eos_token_id?": "", "segment_ids?": "b s",
            },
            {"hash_ids": "b s 2*h", "present_ids?": "b 2"},
            {"b": None, "s": None, "h": (1, 2)},
            {"max_ngram_size": (3,), "n_head_per_ngram": "h", "pad_id": (0, 1), "reset_on_eos": (None, 0, 1)},
            {"input_ids": ("0", "5"), "segment_ids": ("0", "2"), "vocab_sizes": ("2", "20"), "head_offsets": ("0", "5")},
        )
    ],
    "NGramRepeatBlock": [
        Called(
            {"input_ids": "b s", "scores": "b v"},
            {"scores_out": "b v"},
            {"b": None, "s": None, "v": (4, 9)},
            {"ngram_size": (1, 2)},
            {"input_ids": ("0", "4")},
        )
    ],
    "QEmbedLayerNormalization": [
        Called(
            {
                "input_ids": "b s", "segment_ids?g": "b s", "word_embedding_quant": "v h",
                "position_embedding_quant": "40 h", "segment_embedding?g": "2 h", "gamma_quant": "h",
                "beta_quant": "h", "mask?": "b s", "word_embedding_scale": "", "position_embedding_scale": "",
                "segment_embedding_scale?g": "", "gamma_scale": "", "beta_scale": "",
                "word_embedding_zero_point": "", "position_embedding_zero_point": "",
                "segment_embedding_zero_point?g": "", "gamma_zero_point": "", "beta_zero_point": "",
            },
            {"layernorm_out": "b s h", "mask_index_out": "b"},
            {"b": None, "s": None, "v": (4, 7), "h": (4, 8), "g": (0, 1)},
            {"epsilon": (None, 0.1)},
            {"input_ids": ("0", "v"), "segment_ids": ("0", "2"), "mask": ("0", "2")},
        )
    ],
    "QMoE": [
        Called(
            {
                "input": ("n h", "1 n h"), "router_probs": "n e", "fc1_experts_weights": "e s*i h*w//8",
                "fc1_scales": "e s*i [h//g]*c", "fc1_experts_bias?": "e s*i",
                "fc2_experts_weights": "e h i*w//8", "fc2_scales": "e h [i//g]*c", "fc2_experts_bias?": "e h",
                "fc1_zero_points?z": "e [s*i,-(-h//g*w//8)]*c [s*i*w//8]*(1-c)",
                "fc2_zero_points?z": "e [h,-(-i//g*w//8)]*c [h*w//8]*(1-c)", "router_weights?": "n e",
            },
            {"output": "n h"},
            _EXPERTS | {"h": (32,), "i": (16, 32), "g": (16,), "c": (0, 1), "z": (0, 1), "w": (4, 8, 2)},
            _ROUTED
            | {
                "expert_weight_bits": "w", "block_size": "g * c or None", "quant_type": (None, "int"),
                "accuracy_level": (None, 0, 1), "fc1_expert_weight_bits": "w", "fc2_expert_weight_bits": "w",
                "weights_prepacked": (None, 0),
            },
            {
                "fc1_experts_weights": ("0", "256"), "fc2_experts_weights": ("0", "256"),
                "fc1_zero_points": ("0", "256"), "fc2_zero_points": ("0", "256"),
            },
            positive=("fc1_scales", "fc2_scales"),
            types={"T": (FLOAT, FLOAT16)},
            same={"T2": "T"},
        ),
    ],
    "SampleOp": [Called({"X": "..."}, {"Y": "..."})],
    "ScaledSiLU": [Called({"X": "...", "scale?": ""}, {"Y": "..."}, {}, {"alpha": (None, 0.5)})],
    "Tokenizer": [
        Called(
            {"X": ("c", "n c")},
            {"Y": "? ?"},
            {"n": None, "c": None},
            {"mark": (0, 1), "mincharnum": (1,), "pad_value": ("#",), "separators": (["."], [""])},
        ),
        Called(
            {"X": "n c"},
            {"Y": "n c ?"},
            {"n": None, "c": None},
            {"mark": (0, 1), "mincharnum": (1,), "pad_value": ("#",), "tokenexp": ("[0-9]", ".")},
        ),
    ],
    "UnfoldTensor": [
        Called(
            {"input": "... n"},
            {"output": "... (n-s)//p+1 s"},
            {"n": None, "s": (1, 2, 3), "p": (1, 2)},
            {"dim": (None, -1), "size": "s", "step": "p"},
            types={"T": _UNFOLDED},
        ),
        Called(
            {"input": "n ..."},
            {"output": "(n-s)//p+1 ... s"},
            {"n": None, "s": (1, 2, 3), "p": (1, 2)},
            {"dim": (0,), "size": "s", "step": "p"},
            types={"T": _UNFOLDED},
        ),
    ],
    "VarlenCausalConvWithState": [
        Called(
            {
                "input": "3*b c", "weight": "c 1 k", "cumulative_sequence_length": "b+1", "bias?": "c",
                "initial_state": "b c (k-1)*d", "capture_count?u": "b",
            },
            {"output": "3*b c", "final_state": "b c (k-1)*d", "state_update?u": "b u c"},
            {"b": (1, 2), "c": (1, 3), "k": (1, 2, 4), "d": (1, 2), "u": (0, 2)},
            {"dilation": "d", "activation": (None, "none", "silu", "swish"), "state_update_capacity": "u or None"},
            {"capture_count": ("0", "3")},
            {"cumulative_sequence_length": "[0, 3, 6][: b + 1]"},
        )
    ],
    "VarlenNGramHashMapping": [
        Called(
            {
                "input_ids": "3*b", "multipliers": "3", "vocab_sizes": "2*h", "cumulative_sequence_length": "b+1",
                "past_ids?p": "b 2", "head_offsets?": "2*h", "eos_token_id?": "", "segment_ids?s": "3*b",
                "past_segment_ids?p*s": "b 2", "capture_count?u": "b",
            },
            {
                "hash_ids": "3*b 2*h", "present_ids?": "b 2", "present_segment_ids?s": "b 2",
                "state_update?u": "b u 2",
            },
            {"b": (1, 2), "h": (1, 2), "u": (0, 2), "s": (0, 1), "p": (0, 1)},
            {
                "max_ngram_size": (3,), "n_head_per_ngram": "h", "pad_id": (0, 1), "reset_on_eos": (None, 0, 1),
                "state_update_capacity": "u or None",
            },
            {
                "input_ids": ("0", "5"), "segment_ids": ("0", "2"), "past_segment_ids": ("0", "2"),
                "vocab_sizes": ("2", "20"), "capture_count": ("0", "3"),
            },
            {"cumulative_sequence_length": "[0, 3, 6][: b + 1]"},
        )
    ],
    "WordConvEmbedding": [
        Called(  # of words that are known: what it gives for letters that are 0 is whatever lies in memory
            {"Sequence": "s w", "W": "f 1 k e", "B": "f", "C": "v e"},
            {"Y": "s f"},
            {"s": (1, 3), "w": (4, 6), "k": (1, 2, 3), "e": (2, 4), "f": (3,), "v": (9,)},
            {"char_embedding_size": "e", "conv_window_size": "k", "embedding_size": "f"},
            made={"Sequence": "[[1 + (3 * i + j) % 8 for j in range(w)] for i in range(s)]"},
        )
    ],
}  # fmt: skip
