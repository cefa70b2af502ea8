// The values of the instructions for devices that compute in 16 bits (vm/isa.def), in plain C++.
//
// What is computed in f16 is computed in f32 and rounded once, to nearest even: for sums,
// differences and products of two numbers of f16 that is what f16 arithmetic gives.
#pragma once

#include "vm/core.h"

namespace dvm {

// A table with these instructions, and all others as `base` has them.
InstructionTable with_halves(const InstructionTable& base);

}  // namespace dvm
