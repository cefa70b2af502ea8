// The last step of normalisation, for plans that were made of normal plans.
#pragma once

#include "kernels/normalise.h"

namespace dvm {

// Removes axes of extent 1, merges those that are one to all, and orders what is left as
// normalise.h says.
void order_axes(NormalPlan& plan);

}  // namespace dvm
