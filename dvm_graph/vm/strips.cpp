#include "vm/strips.h"

#include <algorithm>
#include <cmath>

#include "vm/steps.h"

namespace dvm {
namespace {

constexpr int64_t kMostLines = 32;
constexpr size_t kMostCopies = 8;  // of an instruction: readers have at most three inputs each

// Extent registers of the loops of a group, outer to inner.
struct Loops {
  uint8_t outer, middle, inner;

  bool operator==(const Loops&) const = default;
  bool flat() const { return outer == 0 && middle == 0; }
};

Loops loops_of(const TileInstruction& instruction) {
  const uint8_t* e = instruction.extents;
  return is_reduction(instruction) ? Loops{0, e[0], e[1]} : Loops{e[0], e[1], e[2]};
}

bool names(const TileOperand& operand, int32_t buffer) {
  return operand.space == Space::local && operand.index == buffer;
}

bool reads(const TileInstruction& instruction, int32_t buffer) {
  for (int k = 1; k < instruction.operand_count; ++k) {
    if (names(instruction.operands[k], buffer)) return true;
  }
  return false;
}

void read_instead(TileInstruction& instruction, int32_t buffer, int32_t other) {
  for (int k = 1; k < instruction.operand_count; ++k) {
    if (names(instruction.operands[k], buffer)) instruction.operands[k].index = other;
  }
}

ExtentRegister extent(const TileCode& code, uint8_t e) {
  return e == 0 ? ExtentRegister{1, -1} : code.extents[e - 1];
}

// A flat instruction can run over these loops as well, and their rows are long enough.
bool splits(const TileCode& code, const TileInstruction& instruction, const Loops& loops,
            int64_t least_row) {
  const ExtentRegister whole = extent(code, instruction.extents[2]);
  const ExtentRegister outer = extent(code, loops.outer), middle = extent(code, loops.middle),
                       inner = extent(code, loops.inner);
  if (inner.dim >= 0 || inner.multiplier < least_row) return false;
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

// What a load of its own that widens would leave there.
bool is_loaded(const TileCode& code, size_t before, const TileOperand& operand) {
  for (size_t i = before; i-- > 0;) {
    const TileInstruction& instruction = code.instructions[i];
    if (names(instruction.operands[0], operand.index)) {
      return is_load(instruction.family) && joins(instruction) && instruction.changed_mask == 0;
    }
  }
  return false;
}

// Computing it anew reads no more than its result would: one row of global memory, and values.
bool is_cheap(const TileCode& code, size_t i) {
  const TileInstruction& instruction = code.instructions[i];
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
    if (in.space == Space::local && !is_loaded(code, i, in)) return false;
    ++rows;
  }
  return rows == 1 && instruction.extents[2] != 0;
}

bool repeats_for(const TileInstruction& reader) {
  return joins(reader) && reader.changed_mask == 0 && (reader.flags & kChunks) == 0;
}

// The one instruction behind the next that reads what instruction i writes. 0: there is none, there
// are several, or others write there, too, as those do that one operation was unrolled to.
size_t late_reader(const TileCode& code, size_t i) {
  const int32_t result = code.instructions[i].operands[0].index;
  size_t reader = 0;
  for (size_t j = 0; j < code.instructions.size(); ++j) {
    if (j == i) continue;
    if (names(code.instructions[j].operands[0], result)) return 0;
    if (j == i + 1 || !reads(code.instructions[j], result)) continue;
    if (reader != 0 || j < i) return 0;
    reader = j;
  }
  return reader;
}

// Results that cost no more than to be read back are computed anew for a reader further down: the
// copy of the instruction joins that one, and nothing has to be stored. A copy has one reader, so
// it is not copied in its turn.
void repeat_cheap(TileCode& code) {
  Steps steps = steps_over(code.instructions.size(), 2, "repetition of cheap results");
  for (size_t i = 0; i + 2 < code.instructions.size(); ++i) {
    steps.take();
    if (!is_cheap(code, i)) continue;
    const TileOperand result = code.instructions[i].operands[0];
    if (!reads(code.instructions[i + 1], result.index)) continue;
    const size_t reader = late_reader(code, i);
    if (reader == 0 || !repeats_for(code.instructions[reader])) continue;
    TileInstruction copy = code.instructions[i];
    copy.operands[0].index = code.add_buffer(code.buffers[result.index].bytes, false);
    read_instead(code.instructions[reader], result.index, copy.operands[0].index);
    code.instructions.insert(code.instructions.begin() + static_cast<std::ptrdiff_t>(reader), copy);
  }
}

// Loads that widen go to where they are read, one for each reader, so that they join it and
// nothing has to be stored. Other loads go to the front of the instructions that they would part.
class LoadMover {
 public:
  LoadMover(TileCode& code, int64_t least_row) : code_(code), least_row_(least_row) {}

  void run() {
    Steps steps = steps_over(code_.instructions.size(), kMostCopies, "moving of loads");
    for (size_t i = 0; i < code_.instructions.size();) {
      steps.take();
      if (!is_load(at(i).family)) {
        ++i;
      } else if (!suits_readers(i)) {
        hoist(i++);
      } else if (!give_to_readers(i)) {
        ++i;
      }
    }
  }

 private:
  TileInstruction& at(size_t i) { return code_.instructions[i]; }
  auto place(size_t i) { return code_.instructions.begin() + static_cast<std::ptrdiff_t>(i); }

  // Every reader can run together with a load of its own.
  bool suits_readers(size_t i) {
    const TileInstruction& load = at(i);
    const TileOperand& out = load.operands[0];
    if (!joins(load) || load.changed_mask != 0 || out.space != Space::local) return false;
    if (code_.buffers[out.index].kept) return false;
    bool any = false;
    for (size_t j = 0; j < code_.instructions.size(); ++j) {
      if (j == i) continue;
      const TileInstruction& other = at(j);
      if (names(other.operands[0], out.index)) return false;
      if (!reads(other, out.index)) continue;
      if (j < i || !joins(other) || other.changed_mask != 0) return false;
      if (is_reduction(other) && other.extents[2] != 0) return false;
      const Loops here = loops_of(load), there = loops_of(other);
      if (here != there && !(here.flat() && splits(code_, load, there, least_row_)) &&
          !(there.flat() && !is_reduction(other) && splits(code_, other, here, least_row_))) {
        return false;
      }
      any = true;
    }
    return any;
  }

  // True: the load is elsewhere now.
  bool give_to_readers(size_t i) {
    const int32_t buffer = at(i).operands[0].index;
    const size_t count = code_.instructions.size();
    size_t first = i + 1;
    while (first < count && !reads(at(first), buffer)) ++first;
    if (first == count) return false;
    for (size_t j = code_.instructions.size(); --j > first;) {
      if (!reads(at(j), buffer)) continue;
      TileInstruction copy = at(i);
      copy.operands[0].index = code_.add_buffer(code_.buffers[buffer].bytes, false);
      copy.flags |= at(j).flags & kChunks;
      read_instead(at(j), buffer, copy.operands[0].index);
      code_.instructions.insert(place(j), copy);
    }
    at(i).flags |= at(first).flags & kChunks;
    size_t next = i + 1;
    while (next < first && is_load(at(next).family)) ++next;
    if (next == first) return false;
    std::rotate(place(i), place(i + 1), place(first));
    return true;
  }

  void hoist(size_t i) {
    if (at(i).operands[0].space == Space::pointer) return;  // others may read what it overwrites
    const TileOperand from = at(i).operands[1];
    size_t to = i;
    for (; to > 0; --to) {
      const TileInstruction& before = at(to - 1);
      const TileOperand& out = before.operands[0];
      if (!joins(before) || (is_load(before.family) && before.changed_mask != 0)) break;
      if (out.space == Space::pointer &&
          code_.pointers[out.index].buffer == code_.pointers[from.index].buffer) {
        break;
      }
    }
    std::rotate(place(to), place(i), place(i + 1));
  }

  TileCode& code_;
  const int64_t least_row_;
};

class Joiner {
 public:
  Joiner(TileCode& code, int64_t least_row, JoinScratch& scratch)
      : code_(code), last_use_(scratch.last_use), least_row_(least_row) {}

  void run() {
    bool any = false;
    for (size_t i = 1; i < code_.instructions.size(); ++i) {
      any |= joins(at(i - 1)) && joins(at(i));
    }
    if (!any) return;
    repeat_cheap(code_);
    LoadMover(code_, least_row_).run();
    find_last_uses();
    for (size_t i = 0; i < code_.instructions.size(); ++i) {
      if (begin_ < i && (join(i) || join_with_loads(i))) continue;
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

  bool starts(size_t i) { return joins(at(i)) && !is_reduction(at(i)); }

  // Joins instruction i to the group before it.
  bool join(size_t i) {
    TileInstruction& next = at(i);
    TileInstruction& last = at(i - 1);
    if (!joins(next) || is_reduction(last)) return false;
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
      if (!transient || !is_load(at(j).family)) return;
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
    if (loops.flat() && !is_reduction(at(i)) && splits(code_, at(i), loops_, least_row_)) {
      split(at(i), loops_);
      return true;
    }
    if (!loops_.flat()) return false;
    for (size_t j = begin_; j < i; ++j) {
      if (!splits(code_, at(j), loops, least_row_)) return false;
    }
    for (size_t j = begin_; j < i; ++j) split(at(j), loops);
    loops_ = loops;
    return true;
  }

  void split(TileInstruction& instruction, const Loops& loops) {
    if (instruction.family == Family::d_load) instruction.family = Family::d_load_view;
    if (instruction.family == Family::d_store) instruction.family = Family::d_store_view;
    instruction.extents[0] = loops.outer;
    instruction.extents[1] = loops.middle;
    instruction.extents[2] = loops.inner;
    const int32_t row = extent(code_, loops.inner).multiplier,
                  rows = extent(code_, loops.middle).multiplier;
    for (int k = 0; k < instruction.operand_count; ++k) {
      TileOperand& operand = instruction.operands[k];
      operand.middle = loops.middle == 0 ? 0 : operand.inner * row;
      operand.outer = loops.outer == 0 ? 0 : operand.inner * row * rows;
    }
  }

  TileCode& code_;
  std::vector<int32_t>& last_use_;
  const int64_t least_row_;
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
  const DType dtype = operand_dtype(info_of(instruction.family).form, instruction.dtype, k);
  return elements * static_cast<int64_t>(size_of(dtype)) ==
         code.pointers[operand.index].steps[code.grid.size() - 1];
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

void fetch_ahead(TileCode& code, const Target& target) {
  if (code.grid.empty()) return;
  const int64_t vector_bytes = target.vector_bytes;
  const int64_t strip = strip_vectors(vector_bytes) * vector_bytes / 4;
  int64_t strips = 0, bytes = 0;
  int found = 0;
  uint8_t before = 0;
  for (const TileInstruction& instruction : code.instructions) {
    const bool begins = (before & kJoined) == 0 &&
                        ((instruction.flags & (kJoined | kRows)) != 0 || (before & kRows) != 0);
    before = instruction.flags;
    if (begins) strips += strips_of(code, instruction, strip);
    if (!joins(instruction) || instruction.changed_mask != 0) continue;
    for (int k = 1; k < instruction.operand_count && found < kAheadStreams; ++k) {
      if (!is_contiguous(code, instruction, k)) continue;
      const auto pointer = static_cast<uint8_t>(instruction.operands[k].index + 1);
      if (code.ahead[0] == pointer || code.ahead[1] == pointer) continue;
      code.ahead[found++] = pointer;
      bytes += code.pointers[pointer - 1].steps[code.grid.size() - 1];
    }
  }
  if (strips == 0 || bytes < target.line_bytes) {
    code.ahead[0] = code.ahead[1] = 0;
    return;
  }
  const int64_t lines = (bytes / target.line_bytes + strips - 1) / strips;
  code.ahead_lines = static_cast<uint8_t>(lines < kMostLines ? lines : kMostLines);
}

void join_strips(TileCode& code, const Target& target, JoinScratch& scratch) {
  // Shorter rows are worse than another pass: what a pass saves of one is half of what it costs.
  const double row = target.costs.in_vector_elements(target.costs.pass_start) / 2;
  Joiner(code, std::lround(row), scratch).run();
}

}  // namespace dvm
