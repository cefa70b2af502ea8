// Runs a program as a core with parallel pipes may: each pipe in order, but in any interleaving
// that the event flags permit. A missing flag shows as a wrong result for some seed.
#pragma once

#include "random_plan.h"
#include "vm/core.h"

namespace dvm::testing {

// False: the pipes block each other for ever.
bool run_tiles_out_of_order(const Program& program, const InstructionTable& table, Core& core,
                            std::byte* const* buffers, int64_t begin, int64_t end, Random& random);

}  // namespace dvm::testing
