#include "vm/tile_loops.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "vm/strips.h"

namespace dvm {

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

bool may_change_places(const TileCode& code, const TileInstruction& a, const TileInstruction& b) {
  const auto touches = [&](const TileOperand& out, const TileInstruction& other) {
    const std::span operands(other.operands, other.operand_count);
    return std::ranges::any_of(
        operands, [&](const TileOperand& operand) { return overlap(code, out, operand); });
  };
  return !touches(a.operands[0], b) && !touches(b.operands[0], a);
}

ExtentRegister extent_of(const TileCode& code, uint8_t e) {
  return e == 0 ? ExtentRegister{1, -1} : code.extents[e - 1];
}

int64_t least_row(const Target& target) {
  return std::lround(target.costs.in_vector_elements(target.costs.pass_start) / 2);
}

bool splits(const TileCode& code, const TileInstruction& instruction, const Loops& loops,
            int64_t least_row) {
  if (instruction.family == Family::d_pack_a_bundles) return false;  // rows are counted in bundles
  const ExtentRegister whole = extent_of(code, instruction.extents[2]);
  const ExtentRegister outer = extent_of(code, loops.outer), middle = extent_of(code, loops.middle),
                       inner = extent_of(code, loops.inner);
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

void split(const TileCode& code, TileInstruction& instruction, const Loops& loops) {
  if (instruction.family == Family::d_load) instruction.family = Family::d_load_view;
  if (instruction.family == Family::d_store) instruction.family = Family::d_store_view;
  instruction.extents[0] = loops.outer;
  instruction.extents[1] = loops.middle;
  instruction.extents[2] = loops.inner;
  const int32_t row = extent_of(code, loops.inner).multiplier,
                rows = extent_of(code, loops.middle).multiplier;
  for (int k = 0; k < instruction.operand_count; ++k) {
    TileOperand& operand = instruction.operands[k];
    operand.middle = loops.middle == 0 ? 0 : operand.inner * row;
    operand.outer = loops.outer == 0 ? 0 : operand.inner * row * rows;
  }
}

void find_last_uses(const TileCode& code, std::vector<int32_t>& last_use) {
  last_use.assign(code.buffers.size(), -1);
  for (size_t i = 0; i < code.instructions.size(); ++i) {
    const TileInstruction& instruction = code.instructions[i];
    for (int k = 0; k < instruction.operand_count; ++k) {
      if (instruction.operands[k].space != Space::local) continue;
      last_use[instruction.operands[k].index] = static_cast<int32_t>(i);
    }
  }
}

bool may_join(const TileCode& code) {
  for (size_t i = 1; i < code.instructions.size(); ++i) {
    if (joins(code.instructions[i - 1]) && joins(code.instructions[i])) return true;
  }
  return false;
}

}  // namespace dvm
