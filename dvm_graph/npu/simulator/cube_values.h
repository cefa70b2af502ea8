// The values of the instructions for cores with several local memories (vm/isa.def), in plain C++.
//
// Products are summed in f32, in the order of k; multiplied numbers are exact in f32. Stores round
// once, to nearest even.
#pragma once

#include "vm/core.h"

namespace dvm {

// A table with these instructions, and all others as `base` has them.
InstructionTable with_cube_memories(const InstructionTable& base);

}  // namespace dvm
