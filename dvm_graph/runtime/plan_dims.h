// The dim slots that a kernel plan, and the decision to launch it, depend on.
#pragma once

#include <vector>

#include "runtime/model.h"

namespace dvm {

// All slots of a plan (extents, accesses, nodes); may repeat.
std::vector<DimSlot> slots_of(const KernelPlan& plan);

// True where the call has no guard or its value is not 0. A guard without a value does not hold.
bool guard_holds(const KernelCall& call, const Dims& dims);

}  // namespace dvm
