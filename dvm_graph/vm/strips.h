// Joining of instructions: neighbours over the same loops are marked to run together, strip by
// strip, so that what one computes is still in registers or in the first-level cache when the next
// one needs it. A mark is a hint: running the instructions one after the other means the same.
//
// Joined instructions are f32 maps over the same loops, the last of which may be a reduction along
// the innermost of them. No two of them may disagree on where an element of a tile lies that one of
// them writes; then every strip depends on strips at its own place only.
#pragma once

#include <vector>

#include "vm/tile_code.h"

namespace dvm {

inline constexpr int kMostJoined = 12;  // instructions

// Instructions that a device with joined execution can run as part of a group.
constexpr bool joins(Family family, DType dtype) {
  if (dtype != DType::f32) return false;
  switch (family) {
    case Family::v_abs:
    case Family::v_neg:
    case Family::v_sqrt:
    case Family::v_rsqrt:
    case Family::v_reciprocal:
    case Family::v_exp:
    case Family::v_log:
    case Family::v_erf:
    case Family::v_tanh:
    case Family::v_sigmoid:
    case Family::v_add:
    case Family::v_sub:
    case Family::v_mul:
    case Family::v_div:
    case Family::v_min:
    case Family::v_max:
    case Family::v_reduce_sum:
    case Family::v_reduce_max:
    case Family::v_reduce_min: return true;
    default: return false;
  }
}

// Vectors of a strip: as many as leave half of the registers to the operations.
constexpr int strip_vectors(int vector_bytes) { return vector_bytes == 64 ? 8 : 4; }

struct JoinScratch {
  std::vector<int32_t> last_use;  // of a buffer: the instruction
};

// Sets kJoined and kTransient, before local memory is laid out.
void join_strips(TileCode& code, JoinScratch& scratch);

// Which contiguous operands of the next tile joined instructions should fetch while they work on
// this one, and how many cache lines with every strip. Sets code.ahead and code.ahead_lines.
void fetch_ahead(TileCode& code, int vector_bytes);

}  // namespace dvm
