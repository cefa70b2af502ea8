// The block shape of a cube or mix kernel: how many rows and columns of C one tile computes, and
// how its operands get to the cube unit.
#pragma once

#include <cstdint>

#include "vm/target.h"

namespace dvm {

// The inner product: A[m, k] before the rest of the prologue is a product over `k` steps.
struct InnerProblem {
  int64_t k = 0;  // 0: there is none
  bool panels = false, pack_a = false, pack_b = false;
  int64_t b_batch = 1;
};

// What the choice depends on.
struct BlockProblem {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t b_batch = 1;  // matrices B; each serves batch / b_batch matrices A
  int64_t element_bytes = 4;
  int columns_per_panel = 32;
  bool whole_rows = false;  // the epilogue reduces along n: a tile holds all columns
  bool panels = false;      // B is packed already
  bool pack_a = false, pack_b = false;
  bool readable_b = false;    // B need not be packed
  bool whole_k = false;       // A is computed by a prologue: its block holds all of k
  bool local_c = false;       // the tile of C lies in local memory
  bool equal_panels = false;  // every tile has the same number of panels
  int prologue_nodes = 0, epilogue_nodes = 0;
  InnerProblem inner;
};

struct BlockShape {
  int64_t rows = 0, columns = 0;
  int64_t k_block = 0;
  bool rows_outer = false;  // walk n innermost, keeping A, instead of m, keeping B
  bool pack_b = false;
  bool keep_b = false;                           // packed B stays while the m blocks pass
  bool keep_inner_b = false;                     // as does that of the inner product
  int64_t inner_columns = 0, inner_k_block = 0;  // of one instruction of the inner product
};

// Least predicted time over the cores. rows == 0: nothing fits into `local_bytes`.
BlockShape choose_block(const BlockProblem& problem, const Target& target, int64_t local_bytes);

}  // namespace dvm
