// A product and what is fused with it, apart: where the cube unit takes its operands from global
// memory alone, what A is computed from becomes a stage before it, what follows one behind it. What
// they hand over lies in the workspace: A in the storage of B, the product in f32.
#pragma once

#include <cstdint>

#include "kernels/normalise.h"

namespace dvm {

struct CutProduct {
  bool has_prologue = false;
  NormalPlan prologue, product, epilogue;
  int64_t workspace_bytes = 0;
};

// False: the plan has an inner product, or one that is not of floats.
bool cut_product(const NormalPlan& plan, CutProduct& out);

}  // namespace dvm
