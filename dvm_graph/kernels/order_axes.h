// The last steps of normalisation, for plans that were made of normal plans.
#pragma once

#include "kernels/normalise.h"

namespace dvm {

// Drops nodes that `keep` does not hold, and reductions that fold nothing: their operand stands in.
// `renumber` says where the others are now.
void compact(NormalPlan& plan, const std::vector<uint8_t>& keep, std::vector<int32_t>& renumber);

// Gives an axis that nothing varies along extent 1.
void close_axis(NormalPlan& plan, int axis);

// Axes that no node has any more get extent 1.
void drop_unused_axes(NormalPlan& plan);

// Removes axes of extent 1, merges those that are one to all, and orders what is left as
// normalise.h says.
void order_axes(NormalPlan& plan);

// New axis i is old axis order[i]; old axes that are not named have extent 1, or are merged into
// others, whose extents the caller sets.
void reorder_axes(NormalPlan& plan, const int* order, int count);

}  // namespace dvm
