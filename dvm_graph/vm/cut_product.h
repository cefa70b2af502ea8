// A product and what is fused with it, apart: where the cube unit takes its operands from global
// memory alone, what A is computed from becomes a stage before it, what follows one behind it. What
// they hand over lies in the workspace: A in the storage of B, the product in f32. Or they go side
// by side, as a pair (vm/pair.h).
#pragma once

#include <cstdint>

#include "kernels/normalise.h"

namespace dvm {

struct CutProduct {
  bool has_prologue = false;
  NormalPlan prologue, product, epilogue;
  NormalPlan rest;                                  // product and epilogue in one
  int64_t prologue_bytes = 0, workspace_bytes = 0;  // of the workspace: for A, and for all
};

// What is handed over begins at this byte of the workspace. False: the plan has an inner product,
// or one that is not of floats.
bool cut_product(const NormalPlan& plan, int64_t first, CutProduct& out);

// A product of a product, as two kernels: the inner one with what follows it element by element,
// whose results lie at the beginning of the workspace, in the dtype that their tensor has, and the
// rest, whose A is computed from them.
struct CutChain {
  NormalPlan inner, rest;
  int64_t workspace_bytes = 0;
};

// False: there is no such product, or several.
bool cut_chain(const NormalPlan& plan, CutChain& out);

// A product whose rows are scaled behind it by what its prologue folds along k (a softmax is
// divided by its sums there: passes/sink_divisions.py), as one whose A is scaled, of whose prologue
// nothing is needed behind the product. False: it is none.
bool scale_rows_before(const NormalPlan& plan, NormalPlan& out);

// Of a plan that was cut, the parts of pairs, over the axes of the plan.

// The epilogue: its first access is that of the sums, which says nothing yet of where they lie.
// False: something reduces, looks around or is stored elsewhere than at its own points.
bool paired_epilogue(const NormalPlan& plan, NormalPlan& out);

// The prologue: its store is that of the rows, which says nothing yet of where they lie. False:
// something looks around, or reduces other axes than k.
bool paired_prologue(const NormalPlan& plan, DType storage, NormalPlan& out);

}  // namespace dvm
