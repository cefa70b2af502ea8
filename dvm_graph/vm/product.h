// Products on cores whose cube unit has local memories of its own (Target::has_cube_memories):
// tiles are chunks of k of blocks of C, over (batch, m and n blocks, chunks).
//
//   mte2: A and B to L1 | mte1: steps of k to L0A and L0B | cube: sums in L0C | fixp: C to memory
//
// In a pair (vm/pair.h) A comes from a ring, or C goes to one, or both.
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

// The slots of a ring, of all cube cores together; none: there is no ring.
struct RingPlace {
  int64_t first = 0, slots = 0, bytes = 0;  // byte of the workspace; of a slot

  int64_t end() const { return first + slots * bytes; }
};

// What a plan asks of the cube unit. `a < 0`: something that it does not do.
struct ProductPlan {
  int32_t a = -1, b = -1, bias = -1;  // accesses
  int32_t c = -1;
  bool relu = false;
  RingPlace sums, rows;  // where C goes, and where A comes from (vm/pair.h); none: memory
  DType multiplied = DType::f16;
  ProductProblem problem;
};
// Reads a packed B (vm/panels.h) by its rows.
void read_packed_rows(NormalPlan& plan, const Target& target);

// What the cube unit lacks of the product of a kernel, in words: the kernel then runs as on a core
// with one local memory. Null: nothing, or what depends on sizes.
const char* lacking(const KernelPlan& plan, const ValueInfo* values);

ProductPlan describe_product(const NormalPlan& plan, const Target& target);

// False: registers do not suffice.
bool lower_product(const NormalPlan& plan, const ProductPlan& product, const ProductBlock& block,
                   const Target& target, TileCode& code);

}  // namespace dvm
