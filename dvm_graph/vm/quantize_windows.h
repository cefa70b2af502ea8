// Depth-wise convolutions of bytes whose sums are rounded to levels at once.
//
// Sums of windows are integers of 32 bits; in a quantised network they are multiplied by a factor
// for each channel, rounded and bounded, and become bytes again: those of a result, or of the left
// operand of a product. A chain of instructions that does so is one instruction instead, which
// keeps the sums in registers. Joined instructions would go over them once more, row by row.
#pragma once

#include <vector>

#include "vm/tile_code.h"

namespace dvm {

struct QuantizeScratch {
  std::vector<int32_t> last_use;  // of a buffer: the instruction
};

void quantize_windows(TileCode& code, QuantizeScratch& scratch);

}  // namespace dvm
