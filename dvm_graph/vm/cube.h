// Cube and mix kernels: tiles of C [rows, columns] over (batch, n blocks, m blocks).
//
// B comes as panels packed at load, is read in place where rows are few (or columns, and those of B
// are contiguous), or is packed into local memory and kept while the m blocks pass. A is read in
// place where its rows are contiguous and do not share cache sets, else packed. A deep k is
// unrolled into several matmul instructions that accumulate. Nodes before the matmul on A's side
// run on the block of A [rows, k]; nodes after it run on the tile of C. An inner product fills the
// block of A first, in blocks of columns where its B is not kept.
#pragma once

#include "vm/cube_problem.h"
#include "vm/lower.h"
#include "vm/tile_code.h"

namespace dvm {

// Lowers what a plan of kind cube or mix describes. `shrink` scales the memory it may plan with.
// False: no block shape fits, or the plan is not one that cube kernels can do.
bool lower_cube(const CubeProblem& problem, double shrink, TileCode& code,
                LoweringScratch& scratch);

}  // namespace dvm
