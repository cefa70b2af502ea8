// The block shape of a product on a core whose cube unit has local memories of its own, by closed
// forms over the target (vm/target.def).
//
// A tile is one chunk of k of a block of C: it comes to L1 in two places (Target::places), so that
// the next one arrives meanwhile, and goes on to L0A and L0B in steps of k, in two places each. The
// sums stay in L0C until the last chunk. Blocks of which L0C holds one alone are done in two
// halves, all steps of the one before those of the other, so that the sums of one leave while the
// other is multiplied.
//
// Where A is computed beside the product, cores walk along lines of blocks, whose rows they get one
// after the other. Several cores of a line each compute its rows anew.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/numbers.h"
#include "vm/target.h"

namespace dvm {

struct ProductProblem {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t a_batch = 1, b_batch = 1;  // different matrices among those of the batch
  int64_t element_bytes = 2;         // of what is multiplied
  double left_bytes = 2;             // of memory, that come for an element of A
  int64_t result_bytes = 2;
  bool bias = false;
  bool to_ring = false;       // C stays in the shared cache, where another core takes it over,
  double piece_elements = 0;  // in equal pieces along the inner loop, of no more elements
  bool from_ring = false;     // other cores compute A beside, line by line of blocks, for each core
  double row_seconds = 0;     // that this takes for an element
};

inline constexpr int kMostHalves = 2;

// How many parts the blocks of C are cut into along either dim of the grid, one for each core, so
// that cores which work side by side read the same rows and columns: what the paper's swizzles are
// for. 0: lines of blocks.
struct Regions {
  int64_t outer = 0, inner = 0;
};

struct ProductBlock {
  int64_t rows = 0, columns = 0;  // rows 0: nothing fits
  int64_t chunk = 0, step = 0;    // of k; steps cut the chunk
  int halves = 1;                 // of the columns: each has sums of its own
  int64_t half = 0;               // columns of one, which the last may have fewer of
  bool rows_outer = false;        // walk n innermost instead of m
  Regions regions;
  double seconds = 0, work = 0;  // predicted, in all and of the cores
};

inline constexpr double kHeld = 0.5;  // of the shared cache, that an operand may fill to stay there

// Slots of a ring of rows: the next line's are computed while one is multiplied.
inline constexpr int64_t kRowSlots = 2;

// Elements of a row of such a slot, of which it has the rows of a block.
constexpr int64_t row_of_slot(const ProductProblem& problem, const Target& target) {
  const int64_t line = std::max<int64_t>(1, target.line_bytes / problem.element_bytes);
  return ceil_div(problem.k, line) * line;
}

// Of sums that are handed over as they are: those of a block.
constexpr int64_t slot_bytes(const ProductBlock& block) {
  return block.rows * block.columns * static_cast<int64_t>(sizeof(float));
}

// The least number of equal pieces that a block is cut into along its inner loop, each of whole
// columns of the unit or whole rows; 0: as many as there could be are too few.
int64_t pieces_of(const ProductBlock& block, double piece_elements, const Target& target,
                  int64_t least = 1);

ProductBlock choose_product_block(const ProductProblem& problem, const Target& target);

}  // namespace dvm
