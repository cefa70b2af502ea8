// Pairs (vm/program.h): a product whose sums do not go to memory, but block by block to vector
// cores beside the cube core, which do element by element what follows the product and store it.
//
//   cube core: ... | fixp: a block to a slot of the ring, signal
//   its lanes in turn: wait | mte2: pieces of the block, what is combined with it, signal | vector
//   | mte3
//
// A slot holds a block as rows of f32. There are two, or one for each lane, so that the cube unit
// goes on meanwhile; all of them stay in the cache that the cores share. The vector program's tiles
// are pieces of a block along the axis that the product walks innermost, so that they follow one
// another as the blocks do.
#pragma once

#include <cstdint>

#include "kernels/normalise.h"
#include "vm/product_block.h"
#include "vm/tile_code.h"

namespace dvm {

// Vector cores of a cube core; 0: cores have both units, or another number of either.
int64_t lanes_of(const Target& target);
// Of the ring of a cube core.
int64_t ring_slots_of(const Target& target);

// The tiles of the vector half for blocks that are cut into so many pieces: the access to the sums,
// the space and grid, and what the header says of them. False: blocks cannot be cut so.
bool tile_pieces(NormalPlan& epilogue, int64_t ring_first, const ProductBlock& block,
                 int64_t pieces, TileCode& code, ProgramHeader& header);

// For both halves, once they are lowered: what the header says of the ring, which begins at this
// byte of the workspace, and the pointer registers that reach it, which follow pieces alone.
// False: there is none, or others are between them.
bool enter_ring(const Target& target, int64_t ring_first, const ProductBlock& block, TileCode& code,
                ProgramHeader& header);

}  // namespace dvm
