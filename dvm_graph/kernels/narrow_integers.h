// Which integers of 64 bits a normal plan computes in 32.
//
// Positions are i64, for axes may be long. Where the extents of a run are numbers, so are the ends
// of what is counted along axes and made of it: what stays within i32 is computed and compared
// there, twice as many at a time; positions are counted in 32 bits for it. A node does so if all
// its operands can and all its readers do, compare, or convert; the result of a reduction, of which
// there is less, is widened for others.
#pragma once

#include "kernels/normalise.h"

namespace dvm {

// False: nothing was changed. Nodes that nobody reads any more stay.
bool narrow_integers(NormalPlan& plan);

}  // namespace dvm
