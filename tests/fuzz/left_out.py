"""Parts of operators that the fuzzer does not draw, and why: a list that may only get shorter."""

from __future__ import annotations

from tests.fuzz.operands import MICROSOFT

_CALLED = [
    "AttnLSTM",
    "BeamSearch",
    "BifurcationDetector",
    "BranchwiseRMSNorm",
    "CDist",
    "CausalConvWithState",
    "ConvTransposeWithDynamicPads",
    "CropAndResize",
    "DecoderMaskedMultiHeadAttention",
    "DynamicQuantizeLSTM",
    "DynamicTimeWarping",
    "EngramGate",
    "GatedAdd",
    "GatedDeltaNet",
    "GatedRMSNorm",
    "GatherPacked",
    "GreedySearch",
    "HyperConnectionPostMix",
    "HyperConnectionPreMix",
    "LinearAttention",
    "LinearAttentionGate",
    "MRotaryEmbedding",
    "MatMulBnb4",
    "MatMulFpQ4",
    "MatMulInteger16",
    "MaxpoolWithMask",
    "MoE",
    "MoEGroupRouter",
    "MurmurHash3",
    "NGramHashMapping",
    "NGramRepeatBlock",
    "QEmbedLayerNormalization",
    "QMoE",
    "SampleOp",
    "Sampling",
    "ScaledSiLU",
    "SparseAttention",
    "SparseToDenseMatMul",
    "Tokenizer",
    "UnfoldTensor",
    "VarlenCausalConvWithState",
    "VarlenNGramHashMapping",
    "WhisperBeamSearch",
    "WordConvEmbedding",
]
"""onnxruntime's own operators that nothing of ours stands for but the call."""

LEFT_OUT: dict[str, dict[str, str]] = {
    "vendor operators, of which nothing is ours but the call": {
        **{f"{MICROSOFT}.{op}": "node" for op in _CALLED},
        f"{MICROSOFT}.Attention": "attribute do_rotary; attribute past_present_share_buffer;"
        " attribute rotary_embedding_dim; operand past_sequence_length",
        f"{MICROSOFT}.MultiHeadAttention": "operand cache_indirection; operand past_sequence_length",
        f"{MICROSOFT}.QAttention": "attribute do_rotary; attribute past_present_share_buffer",
        f"{MICROSOFT}.RotaryEmbedding": "attribute is_packed_batching",
        f"{MICROSOFT}.MatMulNBits": "attribute weight_prepacked; operand g_idx; operand g_idx of tensor(int32)",
        f"{MICROSOFT}.GroupQueryAttention": "attribute k_quant_type; attribute kv_cache_bit_width;"
        " attribute qk_output; attribute sliding_window_cache; attribute v_quant_type; operand k_scale;"
        " operand k_scale of tensor(float); operand past_key of tensor(int8); operand past_key of tensor(uint8);"
        " operand past_value of tensor(int8); operand past_value of tensor(uint8); operand position_ids;"
        " operand query_seqlens; operand query_seqlens of tensor(int32); operand v_scale;"
        " operand v_scale of tensor(float); result output_qk",
    },
    "onnxruntime does not run it": {
        "BatchNormalization": "result mean; result var; result saved_mean; result saved_var",
        "CausalConvWithState": "node",
        "SwiGLU": "node",
        f"{MICROSOFT}.FusedGemm": "attribute activation_gamma",
        f"{MICROSOFT}.SkipLayerNormalization": "result inv_std_var; result mean",
        f"{MICROSOFT}.SkipSimplifiedLayerNormalization": "result inv_std_var; result mean",
        f"{MICROSOFT}.Inverse": "operand X of tensor(float16)",
        "OneHot 9": "operand values of tensor(int32)",
    },
    "optional values without the operators that take them apart again": {
        "Optional": "attribute type",
        "OptionalHasElement 15": "node",
    },
    "of types that random graphs do not have": {
        "Cast": "attribute round_mode",
        "CastLike": "attribute round_mode",
    },
    "what a mask holds that nothing asks for is not said": {
        "Dropout 7": "result mask",
        "Dropout 10": "result mask",
    },
}
"""By the reason: operators, or versions of them, with their parts between semicolons; `node` is all of an operator."""
