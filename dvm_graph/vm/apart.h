// Taking a kernel apart: what is left where a plan fits local memory or the registers of a program
// in no other way.
//
// Every operator becomes a plan of its own, a stage of the launch each, and what one hands to the
// next lies in the workspace. Loads, fills, iotas and patches go with each operator that reads
// them. Stores come last, in their order: a value may lie where another one did that is read before
// (kernels/plan.h).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/normalise.h"

namespace dvm {

struct ApartPlans {
  std::vector<NormalPlan> plans;  // in the order of their stages
  int64_t workspace_bytes = 0;
};

void take_apart(const NormalPlan& plan, ApartPlans& out);

}  // namespace dvm
