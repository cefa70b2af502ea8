#include "vm/strips.h"

#include <algorithm>

#include "vm/tile_loops.h"

namespace dvm {
namespace {

class Joiner {
 public:
  Joiner(TileCode& code, int64_t least_row, JoinScratch& scratch)
      : code_(code), last_use_(scratch.last_use), least_row_(least_row) {}

  void run() {
    find_last_uses(code_, last_use_);
    for (size_t i = 0; i < code_.instructions.size(); ++i) {
      if (begin_ < i && (join(i) || join_with_loads(i))) continue;
      begin_ = starts(i) ? i : i + 1;
      loops_ = loops_of(at(i));
    }
  }

 private:
  TileInstruction& at(size_t i) { return code_.instructions[i]; }

  bool joins_here(const TileInstruction& instruction) const {
    return joins(instruction) &&
           joins_over(instruction.family, extent_of(code_, instruction.extents[2]));
  }

  bool starts(size_t i) { return joins_here(at(i)) && !is_reduction(at(i)); }

  // Joins instruction i to the group before it.
  bool join(size_t i) {
    TileInstruction& next = at(i);
    TileInstruction& last = at(i - 1);
    if (!joins_here(next) || is_reduction(last)) return false;
    if (i - begin_ >= kMostJoined || next.changed_mask != last.changed_mask) return false;
    if ((next.flags ^ last.flags) & kChunks) return false;
    if (is_reduction(next) && (next.extents[2] != 0 || next.operands[1].middle != 1)) return false;
    if (!same_loops(i)) return false;
    for (size_t j = begin_; j < i; ++j) {
      if (!independent(at(j), next)) return false;
    }
    last.flags |= kJoined;
    if (!is_load(next.family)) mark_transient(i);
    return true;
  }

  // What instruction i is the last to read: of loads before it, and of the instruction before
  // those.
  void mark_transient(size_t i) {
    for (size_t j = i; j-- > begin_;) {
      const TileOperand& out = at(j).operands[0];
      const bool transient = out.space == Space::local &&
                             last_use_[out.index] == static_cast<int32_t>(i) &&
                             !code_.buffers[out.index].kept;
      if (transient) at(j).flags |= kTransient;
      if (!transient || !is_part_of_reader(at(j).family, at(j).dtype)) return;
    }
  }

  // Where instruction i does not join the group, but loads did that it reads: a group of those.
  bool join_with_loads(size_t i) {
    size_t first = i;
    while (first > begin_ && is_load(at(first - 1).family)) --first;
    if (first == begin_ || first == i || is_load(at(i).family)) return false;
    at(first - 1).flags &= static_cast<uint8_t>(~kJoined);
    begin_ = first;
    loops_ = loops_of(at(first));
    return join(i);
  }

  // `next` reads what the other one writes at the same steps of the loops, and overwrites nothing.
  bool independent(const TileInstruction& before, const TileInstruction& next) const {
    for (int k = 0; k < before.operand_count; ++k) {
      if (overlap(code_, before.operands[k], next.operands[0])) return false;
    }
    const TileOperand& out = before.operands[0];
    for (int k = 1; k < next.operand_count; ++k) {
      const TileOperand& in = next.operands[k];
      if (!overlap(code_, out, in)) continue;
      if (in.index != out.index || in.offset != out.offset) return false;
      const bool same = is_reduction(next) ? in.outer == out.middle && in.middle == out.inner
                                           : in.outer == out.outer && in.middle == out.middle &&
                                                 in.inner == out.inner;
      if (!same) return false;
    }
    return true;
  }

  // Makes all run over the same loops: one that is flat can go over the others' rows as well.
  bool same_loops(size_t i) {
    const Loops loops = loops_of(at(i));
    if (loops == loops_) return true;
    if (loops.flat() && !is_reduction(at(i)) && splits(code_, at(i), loops_, least_row_)) {
      split(code_, at(i), loops_);
      return true;
    }
    if (!loops_.flat()) return false;
    for (size_t j = begin_; j < i; ++j) {
      if (!splits(code_, at(j), loops, least_row_)) return false;
    }
    for (size_t j = begin_; j < i; ++j) split(code_, at(j), loops);
    loops_ = loops;
    return true;
  }

  TileCode& code_;
  std::vector<int32_t>& last_use_;
  const int64_t least_row_;
  size_t begin_ = 1;  // the first instruction of the group; beyond the current one: none
  Loops loops_{0, 0, 0};
};

// Whether two reductions of different kinds fold the same rows, without gaps: GroupVerifier holds
// programs to it.
bool fold_same_rows(const TileInstruction& one, const TileInstruction& other) {
  if (one.family == other.family) return false;
  for (const TileInstruction* each : {&one, &other}) {
    if (!is_reduction(*each) || !joins(*each) || each->extents[2] != 0) return false;
    if (each->operands[1].middle != 1 || (each->flags & (kJoined | kRows)) != 0) return false;
  }
  return one.extents[0] == other.extents[0] && one.extents[1] == other.extents[1] &&
         one.changed_mask == other.changed_mask && ((one.flags ^ other.flags) & kChunks) == 0 &&
         one.operands[1] == other.operands[1];
}

}  // namespace

void join_folds(TileCode& code) {
  std::vector<TileInstruction>& all = code.instructions;
  const auto alone = [&](size_t i) {
    return i == 0 || (all[i - 1].flags & (kJoined | kRows)) == 0;
  };
  for (size_t i = 0; i < all.size(); ++i) {
    if (!is_reduction(all[i]) || !alone(i)) continue;
    const size_t end = std::min(all.size(), i + kMostJoined);
    const auto at = [&](size_t k) { return all.begin() + static_cast<std::ptrdiff_t>(k); };
    for (size_t j = i + 1; j < end; ++j) {
      if (!fold_same_rows(all[i], all[j]) || !alone(j)) continue;
      const bool moves = std::all_of(at(i), at(j), [&](const TileInstruction& before) {
        return may_change_places(code, before, all[j]);
      });
      if (!moves) continue;
      std::rotate(at(i + 1), at(j), at(j + 1));
      all[i].flags |= kJoined;
      ++i;  // a third one stays by itself
      break;
    }
  }
}

void join_strips(TileCode& code, const Target& target, JoinScratch& scratch) {
  Joiner(code, least_row(target), scratch).run();
}

}  // namespace dvm
