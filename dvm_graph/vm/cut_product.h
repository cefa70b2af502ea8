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
  int64_t prologue_bytes = 0, workspace_bytes = 0;  // of the workspace: for A, and for all
};

// False: the plan has an inner product, or one that is not of floats.
bool cut_product(const NormalPlan& plan, CutProduct& out);

// Sets the epilogue of a plan that was cut to what a pair has (vm/pair.h), over the axes of the
// plan but k: its first access is that of the sums, which says nothing yet of where they lie.
// False: something reduces, looks around or is stored elsewhere than at its own points.
bool cut_epilogue(const NormalPlan& plan, CutProduct& out);

}  // namespace dvm
