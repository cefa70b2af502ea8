// The block shape of a cube or mix kernel: how many rows and columns of C one tile computes, and
// how its operands get to the cube unit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/numbers.h"
#include "vm/target.h"

namespace dvm {

// What it takes to compute an element of A.
struct Prologue {
  int operators = 0;        // vector operators
  int64_t taps = 0;         // of windows
  int64_t window_rows = 0;  // rows of their images that they read
};

// The inner product: A[m, k] before the rest of the prologue is a product over `k` steps.
struct InnerProblem {
  int64_t k = 0;  // 0: there is none
  bool panels = false, pack_a = false, pack_b = false;
  int64_t b_batch = 1;
  bool whole_k = false;  // A is computed, as for the product
  Prologue prologue;
};

// What the choice depends on.
struct BlockProblem {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t b_batch = 1;  // matrices B; each serves batch / b_batch matrices A
  int products = 1;     // of the same A, each with a B and columns C of its own
  int64_t element_bytes = 4;
  double panel_bytes = 4;  // of an element of B that is packed already
  int bundle = 1;  // steps of k that are one element of A and B, and multiplied as fast as one
  int columns_per_panel = 32;
  bool whole_rows = false;  // the epilogue reduces along n: a tile holds all columns
  bool panels = false;      // B is packed already
  bool unpacks = false;     // in such a way that each tile unpacks it
  bool rounds_a = false;    // each tile does, before it multiplies
  bool pack_a = false, pack_b = false;
  int packed_a = 1;           // elements in local memory for each one that is packed
  bool readable_b = false;    // B need not be packed
  bool columns_b = false;     // B is read in place, column by column
  int rows_per_set = 1;       // rows of A read in place that share a set of the L1 cache
  bool whole_k = false;       // A is computed by a prologue: its block holds all of k
  bool local_c = false;       // the tile of C lies in local memory
  bool equal_panels = false;  // every tile has the same number of panels
  int epilogue_nodes = 0;
  bool counts_passes = true;  // of the epilogue over rows; else its elements stand for them
  Prologue prologue;
  bool prologue_folds = false;  // reduces along its rows
  InnerProblem inner;
};

struct BlockShape {
  int64_t rows = 0, columns = 0;
  int64_t k_block = 0;      // in elements of A and B, as is that of the inner product
  bool rows_outer = false;  // walk n innermost instead of m
  bool pack_a = false;      // needed, or worth it: rows of A that share cache sets
  bool pack_b = false;
  bool keep_a = false;                           // packed A stays while the n blocks pass
  bool keep_b = false;                           // packed B stays while the m blocks pass
  bool keep_inner_b = false;                     // as does that of the inner product
  int64_t inner_columns = 0, inner_k_block = 0;  // of one instruction of the inner product
  double cost = 0;                               // predicted, in multiply-adds of one core
};

// Least predicted time over the cores. rows == 0: nothing fits into `local_bytes`.
BlockShape choose_block(const BlockProblem& problem, const Target& target, int64_t local_bytes);

// The predicted time of the separate kernels that do the same: what computes an operand A, each
// product with the element-wise operators that follow it, and the reductions along rows and what
// depends on them, through global memory.
double cost_apart(const BlockProblem& problem, const Target& target);

inline constexpr int64_t kPieceStep = 64;    // pieces of k are multiples of it
inline constexpr int64_t kMostKBlocks = 16;  // of a product, unrolled in the body

// The k of one piece where the product, predicted to cost `whole`, is predicted to be done sooner
// as partial products over pieces of k, which a second stage sums; 0: where it is not.
int64_t choose_piece(const BlockProblem& problem, const Target& target, double whole);

// Whether several of a few rows that lie so far apart share a set of the first-level cache.
constexpr bool shares_sets(int64_t stride_bytes, const Target& target) {
  constexpr int64_t kFewRows = 4;
  return stride_bytes % (target.way_bytes / kFewRows) == 0;
}

// Of so many rows, those that share a set of the first-level cache.
constexpr int64_t rows_in_set(int64_t stride_bytes, int64_t rows, const Target& target) {
  if (stride_bytes == 0) return 1;
  const int64_t way = target.way_bytes;
  const int64_t sets = way / std::max(std::gcd(stride_bytes, way), target.line_bytes);
  return ceil_div(rows, sets);
}

// Elements from row to row of a packed block of A: rows must not share sets of a cache.
int64_t packed_row(int64_t depth, int64_t element_bytes, const Target& target);

// Tiles that one core takes at a time, of `runs` runs; `kept`: an operand stays during a run.
int64_t claimed_run(int64_t runs, int64_t run, bool kept, int64_t cores);

}  // namespace dvm
