// The loops that tile instructions run over, and who reads what of whom: what passes over tile code
// ask.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

// Extent registers of the loops of a group, outer to inner.
struct Loops {
  uint8_t outer, middle, inner;

  bool operator==(const Loops&) const = default;
  bool flat() const { return outer == 0 && middle == 0; }
};

Loops loops_of(const TileInstruction& instruction);

bool names(const TileOperand& operand, int32_t buffer);
bool reads(const TileInstruction& instruction, int32_t buffer);
// Makes it read another buffer in this one's place.
void read_instead(TileInstruction& instruction, int32_t buffer, int32_t other);

// Whether two operands may lie in the same memory, of any tile: the same buffer, but for pointers
// whose known bounds do not meet.
inline bool overlap(const TileCode& code, const TileOperand& a, const TileOperand& b) {
  if (a.space != b.space || a.space == Space::immediate) return false;
  if (a.space == Space::local) return a.index == b.index;
  const PointerRegister &one = code.pointers[a.index], &other = code.pointers[b.index];
  if (one.buffer != other.buffer) return false;
  const bool known = one.low < one.high && other.low < other.high;
  return !known || (one.low < other.high && other.low < one.high);
}
// Neither reads or overwrites what the other one writes.
bool may_change_places(const TileCode& code, const TileInstruction& a, const TileInstruction& b);

// What a number in TileInstruction::extents stands for.
ExtentRegister extent_of(const TileCode& code, uint8_t e);

// Whether there are neighbours that may run together (strips.h); else there is nothing to join, nor
// to prepare for it.
bool may_join(const TileCode& code);

// Elements of the shortest rows that a flat instruction is split into to join others. Shorter ones
// are worse than another pass: what a pass saves of one is half of what it costs.
int64_t least_row(const Target& target);

// A flat instruction can run over these loops as well, and their rows are long enough.
bool splits(const TileCode& code, const TileInstruction& instruction, const Loops& loops,
            int64_t least_row);
void split(const TileCode& code, TileInstruction& instruction, const Loops& loops);

// Of each buffer, the last instruction that names it; -1: none does.
void find_last_uses(const TileCode& code, std::vector<int32_t>& last_use);

}  // namespace dvm
