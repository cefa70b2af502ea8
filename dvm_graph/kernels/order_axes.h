// The last steps of normalisation, for plans that were made of normal plans.
#pragma once

#include "kernels/normalise.h"

namespace dvm {

// Axes that no node has any more get extent 1.
void drop_unused_axes(NormalPlan& plan);

// Removes axes of extent 1, merges those that are one to all, and orders what is left as
// normalise.h says.
void order_axes(NormalPlan& plan);

}  // namespace dvm
