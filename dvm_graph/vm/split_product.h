// Splitting of a matrix product along k: where there are fewer tiles of C than cores, the kernel
// becomes partial products over pieces of k, which a second stage of the launch sums, in the order
// of the pieces, before it computes what follows the product.
//
// The pieces are one more batch axis of the first plan, so all of vm/cube.cpp serves them as it
// does any batch: panels, transposed and packed operands, narrow storage. What does not fill a
// piece is a plan of its own, in the same stage. A product of so long a k that no block of it fits
// local memory is split, too, as the last resort (vm/apart.h). Whether to split, and where, depends
// on the shape and the target, never on which core takes which piece: the same bits at every run.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/cube_problem.h"

namespace dvm {

struct SplitProduct {
  NormalPlan partial;  // whole pieces of k
  NormalPlan rest;     // the last, shorter one
  bool has_rest = false;
  NormalPlan join;
  int64_t workspace_bytes = 0;
  std::vector<int32_t> renumber;  // nodes of the plan, in the join
};

// False: splitting is not possible or not worth it.
bool split_product(const CubeProblem& problem, SplitProduct& out);

// A product of loads alone, in pieces of `depth`, with partial results that lie `before` bytes into
// the workspace. False: its A operand is read by windows, or it has no room for one more axis.
bool split_product(const NormalPlan& product, int64_t depth, int64_t before, SplitProduct& out);

}  // namespace dvm
