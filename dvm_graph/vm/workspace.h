// Where a plan that was made of a normal plan leaves what another one reads.
#pragma once

#include <cstdint>

#include "kernels/normalise.h"

namespace dvm {

// A value of some axes of the plan, dense and aligned, behind the bytes that are in use: as many
// pieces of it as said, one behind the other, are in use from now on.
NormalAccess take_workspace(const NormalPlan& plan, uint32_t axes, DType dtype, int64_t& used,
                            int64_t pieces = 1);

}  // namespace dvm
