// The reference evaluation of a kernel plan: node by node, point by point, in double rounded to the
// node's dtype. Knows nothing of tiles or bytecode.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/plan.h"

namespace dvm::reference {

// Packed panels of B are read as `columns_per_panel` wide (f64: half).
void run_plan(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values,
              std::byte* const* buffers, int columns_per_panel);

}  // namespace dvm::reference
