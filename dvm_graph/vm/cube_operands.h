// How the operands of a product get to the cube unit: A and B in place, packed into local memory
// first, or, B, in panels that were packed before.
#pragma once

#include <cstdint>

#include "vm/cube_problem.h"
#include "vm/lower.h"
#include "vm/tile_code.h"

namespace dvm {

// A product as it is computed in the blocks that were chosen.
struct BlockedProduct : Product {
  bool keep_a = false, keep_b = false;  // packed operands stay while others pass
  bool blocks_columns = false;          // the columns of a tile, in blocks; else those of the grid
  int64_t n_block = 1, k_block = 1;     // of one instruction, k_block in steps
  TileValue computed_a = {};            // a block of it, by the prologue
};

// Steps [k, k + depth) of columns [n, n + columns) of a tile.
struct BlockOfB {
  int64_t k, depth, n, columns;
  uint8_t mask;
};

// Of tiles of so many rows, whose grid is laid out. What has to run before is emitted when an
// operand is asked for.
class CubeOperands {
 public:
  CubeOperands(const CubeProblem& problem, int64_t rows, TileCode& code, Lowering& lowering);

  // Steps [k, k + depth) of A.
  TileOperand a(const BlockedProduct& product, int64_t k, int64_t depth, uint8_t mask);
  TileOperand b(const BlockedProduct& product, const BlockOfB& part);

  // Rounds the computed block of A to bundles.
  void bundle(BlockedProduct& product);
  // Rows of so many bundles along an axis, in a new buffer.
  TileValue room_for_bundles(int64_t steps, int axis, bool kept);
  // Rows of the tile, `offset` elements into them.
  TileOperand rows_of(const TileValue& value, int64_t offset);
  // Of so many elements along an axis that no tile divides: all of them, where it is open.
  uint8_t part_of(int axis, int64_t elements);
  uint8_t columns_extent(const BlockedProduct& product, const BlockOfB& part);

 private:
  TileOperand patches(const BlockedProduct& product, int64_t k, int64_t depth, uint8_t mask);
  TileOperand panels(const BlockedProduct& product, const BlockOfB& part);
  TileOperand panel_buffer(const BlockedProduct& product, const BlockOfB& part, bool kept);
  PointerRegister panel_pointer(const BlockedProduct& product, const BlockOfB& part) const;
  TileInstruction pack_bundles(const TileValue& to, DType from, int64_t depth, uint8_t mask);
  int64_t elements_of(const BlockedProduct& product, int64_t first, int64_t depth) const;
  int64_t patch_row(int64_t depth) const;
  int64_t packed_k(const BlockedProduct& product) const;
  int64_t packed_rows(const BlockedProduct& product) const;
  uint8_t kept_mask(int32_t node) const;

  const CubeProblem& problem_;
  const NormalPlan& plan_;
  const Target& target_;
  const BlockProblem& blocks_;
  const DType dtype_;
  const int64_t bundle_;
  const int64_t rows_;
  TileCode& code_;
  Lowering& lowering_;
};

}  // namespace dvm
