#include "vm/pair.h"

#include <algorithm>

#include "kernels/numbers.h"

namespace dvm {

int64_t lanes_of(const Target& target) {
  if (target.cube_cores == 0 || target.cores % target.cube_cores != 0) return 0;
  return target.cores / target.cube_cores;
}

int64_t ring_slots_of(const Target& target) { return std::max<int64_t>(lanes_of(target), 2); }

bool tile_pieces(NormalPlan& epilogue, int64_t ring_first, const ProductBlock& block,
                 int64_t pieces, TileCode& code, ProgramHeader& header) {
  const int m = epilogue.m_axis, n = epilogue.n_axis;
  const int outer = block.rows_outer ? m : n, inner = block.rows_outer ? n : m;
  const int64_t along = block.rows_outer ? block.columns : block.rows;
  if (along % pieces != 0) return false;
  NormalAccess& sums = epilogue.accesses[0];
  sums.offset = ring_first / sums.element_bytes;
  sums.strides = {};
  sums.strides[m] = block.columns;
  sums.strides[n] = 1;
  code.space.rank = epilogue.rank;
  for (int axis = 0; axis < epilogue.rank; ++axis)
    code.space.axes[axis] = {epilogue.extents[axis], 1, -1};
  const auto cut = [&](int axis, int64_t tile) {
    code.space.axes[axis].tile = std::min(tile, epilogue.extents[axis]);
  };
  cut(outer, block.rows_outer ? block.rows : block.columns);
  cut(inner, along / pieces);
  for (int axis = 0; axis < epilogue.rank; ++axis) {
    if (axis != m && axis != n) code.add_dim(axis);
  }
  code.add_dim(outer);
  code.add_dim(inner);
  code.chunk_dim = static_cast<int>(code.grid.size());
  header.pieces = pieces;
  header.line_tiles = code.space.axes[inner].dim < 0 ? 1 : code.grid.back().count;
  return !code.overflow;
}

bool enter_ring(const Target& target, int64_t ring_first, const ProductBlock& block, TileCode& code,
                ProgramHeader& header) {
  const int64_t slots = ring_slots_of(target);
  const int inner = header.pieces > 0 ? static_cast<int>(code.grid.size()) - 1 : -1;
  for (size_t p = 0; p < code.pointers.size(); ++p) {
    PointerRegister& pointer = code.pointers[p];
    if (pointer.buffer != kWorkspace || pointer.low != ring_first) continue;
    if (header.ring_pointers == 0) header.ring_pointer = static_cast<uint8_t>(p + 1);
    ++header.ring_pointers;
    if (!header.reaches_ring(p)) return false;
    for (int d = 0; d < kMaxGridRank; ++d) {
      if (d != inner || header.line_tiles == 1) pointer.steps[d] = 0;
    }
    pointer.high = pointer.low + target.cube_cores * slots * slot_bytes(block);
  }
  header.lanes = static_cast<uint8_t>(lanes_of(target));
  header.ring_slots = static_cast<uint8_t>(slots);
  header.ring_bytes = slot_bytes(block);
  return header.in_pair();
}

}  // namespace dvm
