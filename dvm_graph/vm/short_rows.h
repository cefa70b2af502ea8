// Rows that are folded and too short for vectors, in kernels that pass over them several times: as
// the positions of extremes are found, or a softmax of a few classes.
//
// An instruction takes as long for a row of a few elements as for one of a few vectors. So the axis
// that rows lie along becomes the innermost one, the rows are turned as they are loaded and stored,
// and every pass goes over whole vectors.
#pragma once

#include "kernels/normalise.h"
#include "vm/target.h"

namespace dvm {

// Changes the order of a vector plan's axes where that is predicted to be faster.
void turn_short_rows(NormalPlan& plan, const Target& target);

}  // namespace dvm
