// Joining of instructions: neighbours over the same loops are marked to run together, strip by
// strip, so that what one computes is still in registers or in the first-level cache when the next
// one needs it. A mark is a hint: running the instructions one after the other means the same.
//
// Joined instructions are f32 maps over the same loops, the last of which may be a reduction along
// the innermost of them; or they are two reductions, of different kinds, of the same rows, which
// are read once. Loads and stores of rows of f16, bf16 and bytes count as maps: the conversion is
// part of the group; so do arithmetic and bounds of the i32 that bytes are, and packing those as
// bundles. No two of them may disagree on where an element of a tile lies that one of them writes;
// then every strip depends on strips at its own place only.
#pragma once

#include <vector>

#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

inline constexpr int kMostJoined = 24;  // instructions

constexpr bool is_load(Family family) {
  return family == Family::d_load || family == Family::d_load_view;
}
constexpr bool is_store(Family family) {
  return family == Family::d_store || family == Family::d_store_view;
}

// Instructions that move elements, which join if both their inner strides are 1.
constexpr bool moves(Family family) {
  return is_load(family) || is_store(family) || family == Family::d_pack_a_bundles;
}
// What packs bundles joins where those are whole: its inner loop, as an extent register.
constexpr bool joins_over(Family family, const ExtentRegister& inner) {
  return family != Family::d_pack_a_bundles ||
         (inner.part == 0 && inner.multiplier % bundle_steps(DType::i8) == 0);
}

// Instructions that a device with joined execution can run as part of a group.
constexpr bool joins(Family family, DType dtype) {
  if (is_load(family) || is_store(family)) return is_half(dtype) || is_byte(dtype);
  if (family == Family::d_pack_a_bundles) return dtype == DType::i32;
  if (family == Family::v_narrow) return is_half(dtype) || is_byte(dtype);
  if (family == Family::v_cast_to_f32) return dtype == DType::i32;
  if (dtype == DType::i32) {
    return family == Family::v_add || family == Family::v_sub || family == Family::v_mul ||
           family == Family::v_min || family == Family::v_max;
  }
  if (dtype != DType::f32) return false;
  switch (family) {
    case Family::v_abs:
    case Family::v_neg:
    case Family::v_cast_to_i32:
    case Family::v_round:
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

inline bool joins(const TileInstruction& instruction) {
  if (!joins(instruction.family, instruction.dtype)) return false;
  return !moves(instruction.family) ||
         (instruction.operands[0].inner == 1 && instruction.operands[1].inner == 1);
}

// Loads that are part of the instruction that reads what they widen.
constexpr bool is_part_of_reader(Family family, DType dtype) {
  return is_load(family) && is_half(dtype);
}

// Vectors of a strip: as many as leave half of the registers to the operations.
constexpr int strip_vectors(int64_t vector_bytes) { return vector_bytes == 64 ? 8 : 4; }

struct JoinScratch {
  std::vector<int32_t> last_use;  // of a buffer: the instruction
};

// Sets kJoined and kTransient, before local memory is laid out. Loads move to where they join, or
// out of the way.
void join_strips(TileCode& code, const Target& target, JoinScratch& scratch);

// Joins reductions by pairs, of those that no group has taken.
void join_folds(TileCode& code);

// Which contiguous operands of the next tile joined instructions should fetch while they work on
// this one, and how many cache lines with every strip. Sets code.ahead and code.ahead_lines.
void fetch_ahead(TileCode& code, const Target& target);

}  // namespace dvm
