// Packing of a B that is given at run time by a stage of its own, into the workspace, as constants
// are packed at load: where more tiles of C would each pack the same part of it than that takes, or
// where its convolution gains by reading windows in place or by transforms, which want panels.
#pragma once

#include <cstdint>
#include <optional>

#include "vm/cube_problem.h"
#include "vm/tile_code.h"

namespace dvm {

struct PackedProduct {
  NormalPlan plan;    // reads panels in the workspace
  NormalAccess from;  // B as it is given
  NormalAccess to;    // as `plan` reads it
  int64_t workspace_bytes = 0;
};

// The problem of `out.plan`; nothing: packing at once is not possible, or not predicted to take
// less.
std::optional<CubeProblem> pack_product(const CubeProblem& problem, PackedProduct& out);

// What packs.
void lower_packing(const PackedProduct& product, const CubeProblem& problem, TileCode& code);

}  // namespace dvm
