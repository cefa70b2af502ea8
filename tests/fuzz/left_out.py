"""Parts of operators that the fuzzer does not draw, and why: a list that may only get shorter."""

from __future__ import annotations

from tests.fuzz.operands import MICROSOFT

LEFT_OUT: dict[str, dict[str, str]] = {
    "onnxruntime runs it on other devices only": {
        f"{MICROSOFT}.CausalConvWithState": "attribute input_channel_offset; attribute input_channels;"
        " attribute state_channels_last; attribute state_length; attribute state_update_capacity; result state_update",
        f"{MICROSOFT}.GatedAdd": "operand gate_weight",
        f"{MICROSOFT}.GroupQueryAttention": "attribute k_norm_epsilon; attribute q_norm_epsilon;"
        " attribute qk_norm_epsilon; operand k_norm_weight; operand q_norm_weight",
        f"{MICROSOFT}.MoE": "attribute swiglu_limit_after_activation; operand fc3_experts_bias; operand fc3_experts_weights",
        f"{MICROSOFT}.QMoE": "attribute fc3_expert_weight_bits; attribute swiglu_limit_after_activation;"
        " operand fc1_act_block_scale; operand fc1_act_scale; operand fc1_global_scale; operand fc2_act_block_scale;"
        " operand fc2_act_scale; operand fc2_global_scale; operand fc3_experts_bias; operand fc3_experts_weights;"
        " operand fc3_scales; operand fc3_zero_points; of tensor(bfloat16)",
        f"{MICROSOFT}.VarlenCausalConvWithState": "attribute delta_offset; attribute group_size; operand kernel_delta;"
        " operand previous_mask",
    },
    "a whole language model is its region": {
        f"{MICROSOFT}.{op}": "node"
        for op in ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")
    },
    "what it reads is no dense tensor": {f"{MICROSOFT}.SparseToDenseMatMul": "node"},
    "onnxruntime runs it only where the caller binds a result to what is read": {
        f"{MICROSOFT}.SparseAttention": "node"
    },
    "onnxruntime runs it only over caches that are larger than what they hold": {
        f"{MICROSOFT}.Attention": "operand past_sequence_length",
        f"{MICROSOFT}.GroupQueryAttention": "operand query_seqlens",
        f"{MICROSOFT}.MultiHeadAttention": "operand cache_indirection; operand past_sequence_length",
    },
    "onnxruntime does not run it": {
        f"{MICROSOFT}.AttnLSTM": "of tensor(double)",
        f"{MICROSOFT}.UnfoldTensor": "of tensor(bfloat16); of tensor(bool); of tensor(float16); of tensor(int16);"
        " of tensor(int8); of tensor(uint16); of tensor(uint32); of tensor(uint64); of tensor(uint8)",
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
}
"""By the reason: operators, or versions of them, with their parts between semicolons; `node` is all of an operator, an
operand one of all types, and a type that of any operand.
"""
