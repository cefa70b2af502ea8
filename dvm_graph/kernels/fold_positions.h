// What a normal plan counts, as few nodes.
//
//   - iotas that are alike are one, as are sums, differences and multiples of what is counted
//   - what is added to the checked index of a gather, and what that is multiplied by, are strides
//     of what the gather reads, which checks the index itself: where no valid one leads outside
//
// So a tensor that is read at points (GatherElements, GatherND in batches) takes one instruction,
// whose indices are read where they lie. Nodes that nobody reads any more stay.
#pragma once

#include "kernels/normalise.h"

namespace dvm {

// False: nothing was changed.
bool fold_positions(NormalPlan& plan);

}  // namespace dvm
