// What a block shape of a cube or mix kernel is predicted to cost: a pure function of the problem,
// the device and the shape, made of named terms. vm/block_shape.cpp searches for the least.
#pragma once

#include <cstdint>

#include "vm/block_shape.h"

namespace dvm {

// A device's costs as products see them: in multiply-adds of one core, per element moved or
// computed unless said otherwise. Elements of any width count alike: those that take twice the
// bytes are multiplied half as fast.
struct CubeTerms {
  explicit CubeTerms(const Target& target);

  double near;                 // moved within the core's own cache, half of it under multiply-adds
  double passing;              // of A, while a B that was packed stays: as fast as that cache reads
  double far;                  // beyond it
  double from_rows;            // of B, which comes in short runs, as memory reads them
  double passed;               // from the caches of one core to another's
  double write_far, read_far;  // of values that no cache holds from stage to stage
  double write_near, read_near;
  double stream_far;           // as write_far, of values that bypass the caches
  double first_panel;          // on top, of panels that nobody has fetched ahead
  double first_of_row;         // of the begin of a row of a direct B that lies far; each
  double first_of_packed_row;  // where nothing waits but the packing
  double pack, pack_rows;      // of any operand; of rows of A that are read back at once
  double vector_operation;     // of one operator behind or before a product
  double far_window;           // of a row of a window, where B has pushed the image out
  double block_start, tile_start, stage_start;  // each
  double run_start;                             // of one more run of k in a block
  double row_block;     // of B, read once more for each register block of rows instead of packed
  double set_conflict;  // of the time, for each row of A in a set of the first-level cache
  double late_core;     // tiles, until the last core is done
  double pass_start;    // of an operator over a row of a tile
  double least_rows;    // of a block of windows
  int room_in_set;      // rows of A in a set that do no harm
};

// The predicted cost of a shape, by what causes it.
struct BlockCost {
  double waves = 0;   // tiles that the busiest core computes
  double tile = 0;    // of one of them, in one block of k, without what is packed or computed
  double above = 0;   // of one: more blocks of k, packing, the prologue and the inner product
  double passed = 0;  // of all: rows that cores touch beyond their shares
  double hidden = 0;  // of one: bringing in B under the multiply-adds
  double late = 0;    // tiles, until the last core is done

  double total() const { return (waves + late) * (tile + above) + passed; }
  // Whether kernels run apart is another question: those pass rows as well, and there B passes
  // under the multiply-adds as well.
  double compared() const { return total() - passed - waves * hidden; }
};

// The terms of a problem on a device. What all shapes of as many rows or columns share is computed
// once, so that a search can go through hundreds of shapes in microseconds.
class BlockModel {
 public:
  BlockModel(const BlockProblem& problem, const Target& target);

  // What tiles of as many rows have in common.
  struct Rows {
    int64_t rows = 0, m_blocks = 0;
    int64_t k_block = 0;  // unless less fits
    bool share_sets = false;
    bool near = false;             // of A lie in the core's caches
    double count = 0;              // rows
    double a = 0;                  // cost of A as it comes from memory
    double prologue = 0;           // of computing it
    double passes = 0;             // of what follows, over the rows of a tile
    double column = 0;             // of a column of each product's tile, in one block of k
    double multiply = 0;           // of it, the multiply-adds
    double split = 0;              // of those by way of parts, and of splitting B; 0: there is none
    double split_a = 0;            // of splitting A, once for all columns
    double in_sets = 0;            // and that on top, where A that shares sets is read in place
    double k_block_of_column = 0;  // what each further one adds, without C
    double passed = 0;             // rows that cores touch beyond their shares
  };
  Rows of_rows(int64_t rows) const;

  // Tiles of whole panels, and as many of them side by side.
  struct Grid {
    Rows rows;
    int64_t columns = 0, n_blocks = 1;
    double least_waves = 0;  // tiles over cores: no order of them takes fewer
    double saved = 0;        // of a tile's multiply-adds, by way of parts
  };
  Grid grid(const Rows& rows, int64_t width) const;

  // Of any shape with these rows, at least.
  double least(const Rows& rows) const;

  double tile(const Grid& grid, const BlockShape& shape) const;
  double waves(const Grid& grid, const BlockShape& shape) const;
  double passed(const Grid& grid, const BlockShape& shape) const;
  double above(const Grid& grid, const BlockShape& shape) const;
  double hidden(const Grid& grid, const BlockShape& shape) const;
  BlockCost cost(const Grid& grid, const BlockShape& shape) const;

  const CubeTerms& terms() const { return t_; }
  int64_t steps() const { return steps_; }  // of k, in elements of A and B
  int64_t inner_steps() const { return inner_steps_; }
  int64_t panels() const { return panels_; }
  int64_t padded_inner() const;  // columns of the inner product, in whole panels

 private:
  double passed_share(int64_t elements) const;
  double passed_by(int64_t blocks) const;
  double inner_product(const Grid& grid, const BlockShape& shape) const;
  double prologue(const Prologue& prologue, int64_t rows, int64_t k) const;
  double tiles_of_a(const Grid& grid, const BlockShape& shape) const;
  double tiles_near_a(const Grid& grid, const BlockShape& shape) const;
  double traffic_of_b(int64_t rows) const;
  bool splits() const;
  double first_of_row(bool packs) const;
  double pack() const { return t_.pack * p_.bundle; }

  const BlockProblem& p_;
  const Target& target_;
  const CubeTerms t_;
  const int64_t steps_, inner_steps_;
  const int64_t sharing_;  // matrices A that a matrix B serves
  const int64_t panels_, register_rows_;
  const double products_;     // side by side
  const double panel_share_;  // bytes of an element of B as it comes from memory, over those in use
  const double first_packed_, first_;  // of the rows of B, packed or not
  const double passed_;                // of touching as many rows once more
  const double passed_by_columns_;     // of the rows that cores touch beyond their shares
};

// Of one shape: what a search compares.
BlockCost cost_of(const BlockProblem& problem, const Target& target, const BlockShape& shape);

// Of computing an element by a prologue.
double work_of(const Prologue& prologue, const CubeTerms& terms);

// What it takes to write a value to global memory, read it again, and start one more stage.
double cost_of_passing(double elements, const BlockProblem& problem, const Target& target);

// The preferred depth of a block of k: as few blocks as a body may unroll.
int64_t k_block_of(int64_t k, int64_t depth);

}  // namespace dvm
