// Pairs (vm/program.h): a product beside what it is fused with, handed over block by block through
// rings of slots in the workspace, which stay in the cache that the cores share.
//
//   lanes: wait | mte2: what A is computed from | vector | mte3: part of the rows, signal
//   cube core: wait | mte2: rows, for all blocks of a line, signal | mte1 | cube
//   | wait | fixp: a block, signal
//   lanes: wait | mte2: pieces of the block, what is combined with it, signal | vector | mte3
//
// *Sums*: what follows the product element by element takes its blocks over, rows of f32. A ring
// has two slots, or one for each lane, so that the cube unit goes on meanwhile. The vector
// program's tiles are pieces of a block along the axis that the product walks innermost, so that
// they follow one another as the blocks do.
//
// *Rows*: what A is computed from, element by element or along its rows, fills a slot with the rows
// of a block in the storage of B, for all blocks of a line; the next line's are computed meanwhile.
// The vector program's tiles are some of the rows, and where nothing is reduced maybe parts of
// them.
//
// A pair with both has them at lanes of their own.
#pragma once

#include <cstdint>

#include "kernels/normalise.h"
#include "vm/product_block.h"
#include "vm/tile_code.h"

namespace dvm {

// Vector cores of a cube core; 0: cores have both units, or another number of either.
int64_t lanes_of(const Target& target);

// The rings of a pair for these blocks: slots and lanes, but where the program reaches them.
// False: there are not enough lanes.
bool plan_rings(const ProductProblem& problem, const ProductBlock& block, const Target& target,
                ProgramHeader& header);

// The tiles of a vector half, with the access to the ring that begins at this byte of the
// workspace, the space and grid, and what the header says of them. False: they cannot be cut so.
// Of what follows a product, whose blocks are cut into so many pieces:
bool tile_pieces(NormalPlan& epilogue, int64_t ring_first, const ProductBlock& block,
                 int64_t pieces, TileCode& code, ProgramHeader& header);
// Of what computes its rows, so many at a time, of each so many elements:
bool tile_rows(NormalPlan& prologue, int64_t ring_first, const ProductProblem& problem,
               const ProductBlock& block, const Target& target, int64_t rows, int64_t depth,
               TileCode& code, ProgramHeader& header);

// For each half, once it is lowered: the pointer registers that reach a ring that begins there, of
// whose steps those stay that are within a slot. False: there are none, or others between them.
bool enter_ring(const Target& target, Handed handed, int64_t ring_first, TileCode& code,
                ProgramHeader& header);

// What a vector core takes for an element of what a half computes over these axes, before its tiles
// are chosen.
struct LaneCost {
  double seconds = 0;       // beside others
  double alone = 0;         // of a tile beside which there is no other
  double memory_bytes = 0;  // read from there
};
LaneCost lane_cost(const NormalPlan& plan, uint32_t axes, const Target& target);

}  // namespace dvm
