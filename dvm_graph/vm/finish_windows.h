// Depth-wise convolutions whose sums are finished in registers.
//
// A row is added to sums of windows, and they end (vm/ending.h); those of bytes, integers of
// 32 bits, are multiplied by a factor for each channel, rounded and bounded, and become bytes
// again: those of a result, or of the left operand of a product. A chain of instructions that does
// so is one instruction instead, which keeps the sums in registers. Joined instructions would go
// over them once more, row by row.
#pragma once

#include <vector>

#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

struct FinishScratch {
  std::vector<int32_t> last_use;  // of a buffer: the instruction
};

void finish_windows(TileCode& code, const Target& target, FinishScratch& scratch);

}  // namespace dvm
