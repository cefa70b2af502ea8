// Plans of kernels that models are full of.
#pragma once

#include "plan_builder.h"

namespace dvm::testing {

PlanBuilder layer_norm(int64_t rows, int64_t columns);
PlanBuilder softmax(int64_t rows, int64_t columns);
PlanBuilder gelu(int64_t elements);
PlanBuilder exp_and_sum(int64_t rows, int64_t columns);
PlanBuilder matmul_bias_gelu(int64_t m, int64_t n, int64_t k, int columns_per_panel);

// softmax(q @ k) @ v over heads, all f32; `weighed` as in KernelPlan.
PlanBuilder attention(int64_t heads, int64_t queries, int64_t keys, int64_t size, bool weighed);
// softmax(x @ w) along the columns.
PlanBuilder matmul_softmax(int64_t m, int64_t n, int64_t k, bool weighed);

}  // namespace dvm::testing
