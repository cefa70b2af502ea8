// Plans of kernels that models are full of.
#pragma once

#include "plan_builder.h"

namespace dvm::testing {

PlanBuilder layer_norm(int64_t rows, int64_t columns);
PlanBuilder softmax(int64_t rows, int64_t columns);
PlanBuilder gelu(int64_t elements);
PlanBuilder exp_and_sum(int64_t rows, int64_t columns);
PlanBuilder matmul_bias_gelu(int64_t m, int64_t n, int64_t k, int columns_per_panel);

}  // namespace dvm::testing
