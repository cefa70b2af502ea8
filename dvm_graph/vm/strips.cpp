#include "vm/strips.h"

namespace dvm {
namespace {

constexpr int64_t kLeastRow = 64;  // elements; shorter rows are worse than another pass

// Extent registers of the loops of a group, outer to inner.
struct Loops {
  uint8_t outer, middle, inner;

  bool operator==(const Loops&) const = default;
  bool flat() const { return outer == 0 && middle == 0; }
};

bool is_reduction(const TileInstruction& instruction) {
  return info_of(instruction.family).form == Form::reduce;
}

class Joiner {
 public:
  Joiner(TileCode& code, JoinScratch& scratch) : code_(code), last_use_(scratch.last_use) {}

  void run() {
    bool any = false;
    for (size_t i = 1; i < code_.instructions.size(); ++i) {
      any |= joins(at(i - 1).family, at(i - 1).dtype) && joins(at(i).family, at(i).dtype);
    }
    if (!any) return;
    find_last_uses();
    for (size_t i = 0; i < code_.instructions.size(); ++i) {
      if (begin_ < i && join(i)) continue;
      begin_ = starts(i) ? i : i + 1;
      loops_ = loops_of(at(i));
    }
  }

 private:
  TileInstruction& at(size_t i) { return code_.instructions[i]; }

  void find_last_uses() {
    last_use_.assign(code_.buffers.size(), -1);
    for (size_t i = 0; i < code_.instructions.size(); ++i) {
      const TileInstruction& instruction = at(i);
      for (int k = 0; k < instruction.operand_count; ++k) {
        if (instruction.operands[k].space != Space::local) continue;
        last_use_[instruction.operands[k].index] = static_cast<int32_t>(i);
      }
    }
  }

  bool starts(size_t i) { return joins(at(i).family, at(i).dtype) && !is_reduction(at(i)); }

  static Loops loops_of(const TileInstruction& instruction) {
    const uint8_t* e = instruction.extents;
    return is_reduction(instruction) ? Loops{0, e[0], e[1]} : Loops{e[0], e[1], e[2]};
  }

  ExtentRegister extent(uint8_t e) const {
    return e == 0 ? ExtentRegister{1, -1} : code_.extents[e - 1];
  }

  // Joins instruction i to the group before it.
  bool join(size_t i) {
    TileInstruction& next = at(i);
    TileInstruction& last = at(i - 1);
    if (!joins(next.family, next.dtype) || is_reduction(last)) return false;
    if (i - begin_ >= kMostJoined || next.changed_mask != last.changed_mask) return false;
    constexpr uint8_t kChunks = kFirstChunk | kLastChunk;
    if ((next.flags ^ last.flags) & kChunks) return false;
    if (is_reduction(next) && (next.extents[2] != 0 || next.operands[1].middle != 1)) return false;
    if (!same_loops(i)) return false;
    for (size_t j = begin_; j < i; ++j) {
      if (!independent(at(j), next)) return false;
    }
    last.flags |= kJoined;
    const TileOperand& out = last.operands[0];
    if (out.space == Space::local && last_use_[out.index] == static_cast<int32_t>(i) &&
        !code_.buffers[out.index].kept) {
      last.flags |= kTransient;
    }
    return true;
  }

  // `next` reads what the other one writes at the same steps of the loops, and overwrites nothing.
  bool independent(const TileInstruction& before, const TileInstruction& next) const {
    for (int k = 0; k < before.operand_count; ++k) {
      if (overlap(before.operands[k], next.operands[0])) return false;
    }
    const TileOperand& out = before.operands[0];
    for (int k = 1; k < next.operand_count; ++k) {
      const TileOperand& in = next.operands[k];
      if (!overlap(out, in)) continue;
      if (in.index != out.index || in.offset != out.offset) return false;
      const bool same = is_reduction(next) ? in.outer == out.middle && in.middle == out.inner
                                           : in.outer == out.outer && in.middle == out.middle &&
                                                 in.inner == out.inner;
      if (!same) return false;
    }
    return true;
  }

  bool overlap(const TileOperand& a, const TileOperand& b) const {
    if (a.space != b.space) return false;
    if (a.space == Space::local) return a.index == b.index;
    return a.space == Space::pointer &&
           code_.pointers[a.index].buffer == code_.pointers[b.index].buffer;
  }

  // Makes all run over the same loops: one that is flat can go over the others' rows as well.
  bool same_loops(size_t i) {
    const Loops loops = loops_of(at(i));
    if (loops == loops_) return true;
    if (loops.flat() && !is_reduction(at(i)) && splits(at(i), loops_)) {
      split(at(i), loops_);
      return true;
    }
    if (!loops_.flat()) return false;
    for (size_t j = begin_; j < i; ++j) {
      if (!splits(at(j), loops)) return false;
    }
    for (size_t j = begin_; j < i; ++j) split(at(j), loops);
    loops_ = loops;
    return true;
  }

  // A flat instruction can run over these loops as well.
  bool splits(const TileInstruction& instruction, const Loops& loops) const {
    const ExtentRegister whole = extent(instruction.extents[2]);
    const ExtentRegister outer = extent(loops.outer), middle = extent(loops.middle),
                         inner = extent(loops.inner);
    if (inner.dim >= 0 || inner.multiplier < kLeastRow) return false;
    if (loops.outer != 0 && middle.dim >= 0) return false;
    const int dim = loops.outer != 0 ? outer.dim : middle.dim;
    if (whole.dim != dim) return false;
    if (int64_t{whole.multiplier} !=
        int64_t{outer.multiplier} * middle.multiplier * inner.multiplier) {
      return false;
    }
    for (int k = 0; k < instruction.operand_count; ++k) {
      if (instruction.operands[k].inner != 0 && instruction.operands[k].inner != 1) return false;
    }
    return true;
  }

  void split(TileInstruction& instruction, const Loops& loops) {
    instruction.extents[0] = loops.outer;
    instruction.extents[1] = loops.middle;
    instruction.extents[2] = loops.inner;
    const int32_t row = extent(loops.inner).multiplier, rows = extent(loops.middle).multiplier;
    for (int k = 0; k < instruction.operand_count; ++k) {
      TileOperand& operand = instruction.operands[k];
      operand.middle = loops.middle == 0 ? 0 : operand.inner * row;
      operand.outer = loops.outer == 0 ? 0 : operand.inner * row * rows;
    }
  }

  TileCode& code_;
  std::vector<int32_t>& last_use_;
  size_t begin_ = 1;  // the first instruction of the group; beyond the current one: none
  Loops loops_{0, 0, 0};
};

}  // namespace

void join_strips(TileCode& code, JoinScratch& scratch) { Joiner(code, scratch).run(); }

}  // namespace dvm
