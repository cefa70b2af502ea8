#include "vm/strips.h"

namespace dvm {
namespace {

constexpr int64_t kCacheLine = 64, kMostLines = 32;
constexpr int64_t kLeastRow = 64;  // elements; shorter rows are worse than another pass

// Extent registers of the loops of a group, outer to inner.
struct Loops {
  uint8_t outer, middle, inner;

  bool operator==(const Loops&) const = default;
  bool flat() const { return outer == 0 && middle == 0; }
};

bool reads(const TileInstruction& instruction, int32_t buffer) {
  for (int k = 1; k < instruction.operand_count; ++k) {
    const TileOperand& operand = instruction.operands[k];
    if (operand.space == Space::local && operand.index == buffer) return true;
  }
  return false;
}

// Computing it anew reads no more than its result would: one row of global memory, and values.
bool is_cheap(const TileCode& code, const TileInstruction& instruction) {
  const Family family = instruction.family;
  if (instruction.dtype != DType::f32) return false;
  if (instruction.changed_mask != 0 || instruction.flags != 0) return false;
  if (family != Family::v_add && family != Family::v_sub && family != Family::v_mul) return false;
  const TileOperand& out = instruction.operands[0];
  if (out.space != Space::local || code.buffers[out.index].kept) return false;
  int rows = 0;
  for (int k = 1; k < 3; ++k) {
    const TileOperand& in = instruction.operands[k];
    if (in.space == Space::immediate || in.inner == 0) continue;
    if (in.space != Space::pointer) return false;
    ++rows;
  }
  return rows == 1 && instruction.extents[2] != 0;
}

bool repeats_for(const TileInstruction& reader) {
  constexpr uint8_t kChunks = kFirstChunk | kLastChunk;
  return joins(reader.family, reader.dtype) && reader.changed_mask == 0 &&
         (reader.flags & kChunks) == 0;
}

// Results that cost no more than to be read back are computed anew for a reader further down: the
// copy of the instruction joins that one, and nothing has to be stored.
void repeat_cheap(TileCode& code) {
  for (size_t i = 0; i + 2 < code.instructions.size(); ++i) {
    if (!is_cheap(code, code.instructions[i])) continue;
    const TileOperand result = code.instructions[i].operands[0];
    if (!reads(code.instructions[i + 1], result.index)) continue;
    size_t reader = 0;
    int uses = 0;
    for (size_t j = 0; j < code.instructions.size(); ++j) {
      const TileOperand& out = code.instructions[j].operands[0];
      const bool writes = out.space == Space::local && out.index == result.index;
      if (j <= i + 1 && !(writes && j != i)) continue;
      if (!writes && !reads(code.instructions[j], result.index)) continue;
      ++uses;
      reader = j;
    }
    if (uses != 1 || !repeats_for(code.instructions[reader])) continue;
    TileInstruction copy = code.instructions[i];
    copy.operands[0].index = code.add_buffer(code.buffers[result.index].bytes, false);
    TileInstruction& last = code.instructions[reader];
    for (int k = 1; k < last.operand_count; ++k) {
      TileOperand& operand = last.operands[k];
      if (operand.space == Space::local && operand.index == result.index) {
        operand.index = copy.operands[0].index;
      }
    }
    code.instructions.insert(code.instructions.begin() + static_cast<std::ptrdiff_t>(reader), copy);
  }
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
    repeat_cheap(code_);
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

// The loops that one operand runs over in a full tile are the bytes up to the next tile's.
bool is_contiguous(const TileCode& code, const TileInstruction& instruction, int k) {
  const TileOperand& operand = instruction.operands[k];
  if (operand.space != Space::pointer || code.pointers[operand.index].buffer < 0) return false;
  const int32_t strides[] = {operand.outer, operand.middle, operand.inner};
  int64_t elements = 1;
  for (int loop = 0; loop < 3; ++loop) {
    const uint8_t e = instruction.extents[loop];
    if (e == 0) continue;
    if (strides[loop] == 0) return false;
    elements *= code.full_extent(e);
  }
  return elements * 4 == code.pointers[operand.index].steps[code.grid.size() - 1];
}

int64_t strips_of(const TileCode& code, const TileInstruction& instruction, int64_t strip) {
  int64_t strips = 1;
  const int inner = is_reduction(instruction) ? 1 : 2;
  for (int loop = 0; loop < 3; ++loop) {
    const int64_t extent = code.full_extent(instruction.extents[loop]);
    strips *= loop == inner ? (extent + strip - 1) / strip : extent;
  }
  return strips;
}

}  // namespace

void fetch_ahead(TileCode& code, int vector_bytes) {
  if (code.grid.empty()) return;
  const int64_t strip = int64_t{strip_vectors(vector_bytes)} * vector_bytes / 4;
  int64_t strips = 0, bytes = 0;
  int found = 0;
  uint8_t before = 0;
  for (const TileInstruction& instruction : code.instructions) {
    const bool begins = (before & kJoined) == 0 &&
                        ((instruction.flags & (kJoined | kRows)) != 0 || (before & kRows) != 0);
    before = instruction.flags;
    if (begins) strips += strips_of(code, instruction, strip);
    if (!joins(instruction.family, instruction.dtype)) continue;
    for (int k = 1; k < instruction.operand_count && found < kAheadStreams; ++k) {
      if (!is_contiguous(code, instruction, k)) continue;
      const auto pointer = static_cast<uint8_t>(instruction.operands[k].index + 1);
      if (code.ahead[0] == pointer || code.ahead[1] == pointer) continue;
      code.ahead[found++] = pointer;
      bytes += code.pointers[pointer - 1].steps[code.grid.size() - 1];
    }
  }
  if (strips == 0 || bytes < kCacheLine) {
    code.ahead[0] = code.ahead[1] = 0;
    return;
  }
  const int64_t lines = (bytes / kCacheLine + strips - 1) / strips;
  code.ahead_lines = static_cast<uint8_t>(lines < kMostLines ? lines : kMostLines);
}

void join_strips(TileCode& code, JoinScratch& scratch) { Joiner(code, scratch).run(); }

}  // namespace dvm
