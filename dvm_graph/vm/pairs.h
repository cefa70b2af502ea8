// Which numbers of 16 bits a vector plan moves by pairs, as words of 32, or as they are.
//
// Tiles hold f32 or i32 for what is 16 bits long in memory, so that what is only moved would be
// widened, kept at twice the size and narrowed again. Where neighbours of a row move together -
// rows lie without gaps, and begin and end between pairs, wherever an operator reads or writes them
// - a plan of half as long rows of i32 means the same, and whatever is said of plans that move i32
// holds. Where they do not, and the device copies in 16 bits, they are moved as they are stored,
// for which f16 stands.
#pragma once

#include "kernels/normalise.h"
#include "vm/target.h"

namespace dvm {

// Changes nodes, accesses and the innermost extent, or nothing.
void move_pairs(NormalPlan& plan, const Target& target);

}  // namespace dvm
