// Products on cores whose cube unit has local memories of its own (Target::has_cube_memories):
// tiles are chunks of k of blocks of C, over (batch, m and n blocks, chunks).
//
//   mte2: A and B to L1 | mte1: steps of k to L0A and L0B | cube: sums in L0C | fixp: C to memory
//
// What is multiplied is loaded as it is stored, in any orientation, in f16, bf16 or f32; sums are
// of f32; a bias along n and a relu go with the product, and so does the rounding to what is
// stored.
#pragma once

#include <cstdint>

#include "kernels/normalise.h"
#include "vm/product_block.h"
#include "vm/tile_code.h"

namespace dvm {

// What a plan asks of the cube unit. `a < 0`: something that it does not do.
struct ProductPlan {
  int32_t a = -1, b = -1, bias = -1;  // accesses
  int32_t c = -1;
  bool relu = false;
  int64_t ring_slots = 0;  // C goes there, slot by slot (vm/pair.h); 0: to memory
  int64_t ring_first = 0;  // byte of the workspace
  DType multiplied = DType::f16;
  ProductProblem problem;
};
// Reads a packed B (vm/panels.h) by its rows.
void read_packed_rows(NormalPlan& plan, const Target& target);

// What the cube unit lacks of the product of a kernel, in words: the kernel then runs as on a core
// with one local memory. Null: nothing, or what depends on sizes.
const char* lacking(const KernelPlan& plan, const ValueInfo* values);

ProductPlan describe_product(const NormalPlan& plan, const Target& target);

// False: no block fits, or registers do not suffice.
bool lower_product(const NormalPlan& plan, const ProductPlan& product, const Target& target,
                   TileCode& code, ProductBlock& block);

}  // namespace dvm
