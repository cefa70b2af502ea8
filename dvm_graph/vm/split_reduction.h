// Splitting of a reduction over cores: when a kernel has few parallel points and much to reduce,
// it becomes two normal plans. The first writes a partial result per piece of the reduced axes to
// the workspace; the second joins the pieces in order and computes what follows. The pieces depend
// on the shape only, so the result is the same whatever the number of cores.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/target.h"
#include "vm/tiling.h"

namespace dvm {

struct SplitReduction {
  ForcedTile piece;  // of the first plan
  int64_t workspace_bytes = 0;
  NormalPlan partial, join;
  std::vector<int32_t> renumber_partial, renumber_join;
  std::vector<uint8_t> roles;
};

// False: splitting is not possible or not worth it.
bool split_reduction(const NormalPlan& plan, const Target& target, const LiveBytes& live,
                     SplitReduction& out);

}  // namespace dvm
