#include "vm/repeat_cheap.h"

#include "vm/steps.h"
#include "vm/strips.h"
#include "vm/tile_loops.h"

namespace dvm {
namespace {

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

}  // namespace

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

}  // namespace dvm
