// Programs that serve for several extents. A kernel some axis of which has another extent from turn
// to turn is compiled for more elements along it than there are, as if the only tile were one at
// the end, which may be smaller than others. How many there are is said in the grid, and with it
// how far pointers reach: nothing else in a program depends on it.
#pragma once

#include <cstdint>

#include "vm/compile.h"

namespace dvm {

// Elements along an axis to compile for where there are so many, which is 1 or more: few numbers
// serve for all.
int64_t room_for(int64_t extent);

// Tells programs the extents of the kernel plan, none of which may be 0, or more than they were
// compiled for.
void resize(CompiledKernel& kernel, const KernelPlan& plan, const int64_t* dims,
            const Target& target);

}  // namespace dvm
