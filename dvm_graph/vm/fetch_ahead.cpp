#include "vm/strips.h"

namespace dvm {
namespace {

constexpr int64_t kMostLines = 32;

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

}  // namespace dvm
