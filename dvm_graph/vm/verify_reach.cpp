#include "vm/verify_reach.h"

#include <algorithm>

#include "vm/panels.h"

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

Reaches::Steps Reaches::steps_of(const OperandInfo& info, DType made_of, const Operand& operand,
                                 DType dtype) const {
  const int64_t outer = operand.outer_stride, middle = operand.middle_stride,
                inner = operand.inner_stride;
  const bool bundles = info.type == Type::bundles;
  const auto columns = [&] { return panel_columns(dtype, target_); };
  switch (info.walk) {
    case Walk::folded: return {{outer, 0, inner}};
    case Walk::rows:
    case Walk::steps: return {{0, middle, inner}};
    case Walk::bundled_rows: return {{0, middle, inner}, 0, false, 2, bundle_steps(made_of)};
    case Walk::panels:
      return {{0, columns(), outer}, columns(), true, bundles ? 1 : -1, bundle_steps(made_of)};
    case Walk::product: return {{middle, 0, inner}};
    case Walk::product_rows: return {{middle, inner, 0}};
    case Walk::columns:
      if (inner != 1) return {{0, middle, inner}};
      return {{0, middle, outer}, columns(), false};
    case Walk::transformed:
    case Walk::panel_columns: return {{0, middle, outer}, columns(), true};
    case Walk::panel_blocks: return {{0, middle, outer}, columns(), true, 1};  // steps: check_reach
    case Walk::row: return {{0, 0, inner}};
    default: return {{outer, middle, inner}};
  }
}

int64_t Reaches::last_offset(const Steps& walk, int loop, int64_t extent) {
  if (extent <= 0) return 0;
  if (loop == walk.bundled_loop) extent = (extent + walk.steps - 1) / walk.steps;
  if (loop != 2 || walk.panel_columns == 0) {
    return std::clamp(walk.strides[loop] * (extent - 1), -kTooFar, kTooFar);
  }
  const int64_t panels = (extent + walk.panel_columns - 1) / walk.panel_columns;
  const int64_t last = extent - (panels - 1) * walk.panel_columns - 1;
  return std::clamp(walk.strides[2] * (panels - 1), -kTooFar, kTooFar) +
         (walk.padded ? walk.panel_columns - 1 : last);
}

// Offsets over all tiles: separable by grid dim, and linear in the coordinate except that the
// last tile may be smaller, so the first, the last full and the last tile are the extremes.
Reach Reaches::reach_of(const Loops& loops, const Steps& walk, int64_t element,
                        const int64_t* steps) const {
  Reach reach;
  if (steps == nullptr && walk.rises()) {
    for (int loop = 0; loop < 3; ++loop) {
      const int64_t last = std::max<int64_t>(loops[loop].most - 1, 0);
      reach.high += std::min(walk.strides[loop] * last, kTooFar) * element;
    }
    return reach;
  }
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
