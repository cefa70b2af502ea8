// Which nodes of a vector plan a device does in 16 bits.
//
// Where values of a dtype of 16 bits lie in local memory as they are stored (Target::holds), loads,
// gathers and stores of it move them, and casts stand between them and what is done in f32. A node
// is done in 16 bits itself if its tensors have that dtype, the device has the instruction, its
// operands come that way from memory, a cast of the model or such nodes, and its readers are such
// nodes or stores: so a chain with anything in it that the device does in f32 (a sum, an
// exponential) is done in f32 from its loads to its stores, and rounded once, as on a device that
// has f32 only. Each of the others rounds its result to nearest even.
#pragma once

#include <vector>

#include "kernels/normalise.h"
#include "vm/target.h"

namespace dvm {

struct HalvesScratch {
  // Of a node of the plan: where it lies in the new one in 16 bits and in f32; -1: not there.
  struct Place {
    int32_t half = -1, wide = -1;
  };
  std::vector<uint8_t> roles;
  std::vector<Place> places;
  std::vector<NormalNode> nodes;
};

// Changes nodes, not accesses. A plan without values that the device holds in 16 bits stays as it
// is.
void compute_halves(NormalPlan& plan, const Target& target, HalvesScratch& scratch);

}  // namespace dvm
