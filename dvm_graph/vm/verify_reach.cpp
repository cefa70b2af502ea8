#include "vm/verify_reach.h"

#include <algorithm>

namespace dvm {

Reaches::Reaches(const Program& program, const Target& target)
    : program_(program), header_(program.header()), target_(target) {
  loops_[0] = {-1, 1, 1, 1};
  for (size_t r = 0; r < program.extents().size(); ++r) {
    loops_[r + 1] = loop_of(program.extents()[r]);
  }
}

Reaches::Loop Reaches::loop_of(const ExtentRegister& extent) const {
  const int64_t all = extent.multiplier;
  if (extent.dim < 0) return {-1, all, 1, all};
  const GridDim& dim = program_.grid()[extent.dim];
  const int64_t full = extent.value(dim.tile), tail = extent.value(dim.tail());
  return {extent.dim, full, tail, dim.count > 1 ? full : tail};
}

// Offsets over all tiles: separable by grid dim, and linear in the coordinate except that the
// last tile may be smaller, so the first, the last full and the last tile are the extremes.
Reach Reaches::reach_over_tiles(const Loops& loops, const Steps& walk, int64_t element,
                                const int64_t* steps) const {
  Reach reach;
  for (int loop = 0; loop < 3; ++loop) {
    if (loops[loop].dim >= 0) continue;
    reach.add(last_offset(walk, loop, loops[loop].full) * element);
  }
  if (steps == nullptr && loops.follow_none()) return reach;
  for (int d = 0; d < header_.grid_rank; ++d) {
    const int64_t step = steps == nullptr ? 0 : steps[d];
    const int64_t last = program_.grid()[d].count - 1;
    if (!loops.follow(d)) {
      reach.add(last * step);
      continue;
    }
    Reach full, tail;
    bool empty_tail = false;  // parts behind the end touch nothing
    for (int loop = 0; loop < 3; ++loop) {
      if (loops[loop].dim != d) continue;
      empty_tail |= loops[loop].tail == 0;
      tail.add(last_offset(walk, loop, loops[loop].tail) * element);
      if (last > 0) full.add(last_offset(walk, loop, loops[loop].full) * element);
    }
    int64_t low = tail.low + last * step, high = tail.high + last * step;
    if (last > 0) {
      const int64_t last_full = (last - 1) * step;
      if (empty_tail) low = high = 0;
      low = std::min(low, full.low + std::min<int64_t>(last_full, 0));
      high = std::max(high, full.high + std::max<int64_t>(last_full, 0));
    }
    reach.low += low;
    reach.high += high;
  }
  return reach;
}

// Over the tiles that are at a slot, from where it begins: a half on lanes comes through the last
// dims of its grid, of one of them maybe in part; the cube unit's through the chunks.
Reach Reaches::reach_in_slot(const Loops& loops, const Steps& walk, int64_t element,
                             const PointerRegister& pointer) const {
  int64_t steps[kMaxGridRank] = {};
  Reach part;
  int64_t left =
      header_.beside_cube() ? std::min(header_.pieces, header_.line_tiles) : header_.tile_group;
  for (int d = header_.grid_rank - 1; d >= 0 && left > 1; --d) {
    const int64_t count = program_.grid()[d].count;
    if (left >= count) {
      steps[d] = pointer.steps[d];
    } else {
      part.add((left - 1) * pointer.steps[d]);
    }
    left = left % count == 0 ? left / count : 1;
  }
  Reach reach = reach_of(loops, walk, element, steps);
  reach.low += part.low;
  reach.high += part.high;
  return reach;
}

}  // namespace dvm
