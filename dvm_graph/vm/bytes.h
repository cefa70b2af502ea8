// Which numbers of 8 bits a vector plan leaves as they are.
//
// Integers are computed in 32 bits at least. What is only moved, chosen from, compared, or taken
// bit by bit needs no more than it has in memory: there bytes are b8, which instructions keep as
// they are and take for unsigned, and of which a vector holds four times as many, and a load or
// store that converts nothing is part of what reads or makes it. A node whose operands or readers
// want numbers stays as it is, and so does what it reads.
#pragma once

#include <vector>

#include "kernels/normalise.h"

namespace dvm {

struct BytesScratch {
  std::vector<uint8_t> kinds;  // of a node of the plan
};

// Changes nodes, and the storage dtype of their accesses.
void keep_bytes(NormalPlan& plan, BytesScratch& scratch);

}  // namespace dvm
