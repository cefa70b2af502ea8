// Instruction words. An instruction is a head word and the operands its form declares, all whole
// 64-bit words, little-endian bit fields:
//
//   head     opcode:16 | words:8 | changed_mask:8 | flags:8 | e0:8 | e1:8 | e2:8
//   operand  word 0: address:32 | inner_stride:i32     word 1: outer_stride:i32 | middle_stride:i32
//
// Loops: every data instruction iterates e0 x e1 x e2 (outer, middle, inner), named by *extent
// registers* that the scalar unit refreshes for each tile, so that a ragged tail at any level is
// the same body with other register values. Register 0 always holds 1. Strides count elements.
//
// Addresses: the top two bits of `address` name the space
//   local      byte offset into the core's local memory
//   pointer    index of a pointer register: the tile's address in global memory (for v_iota: an
//              integer base), refreshed by the scalar unit for each tile
//   immediate  the operand is one value, held in word 1; all strides are 0
//
// `changed_mask`: 0 runs always; otherwise the instruction runs only if a grid coordinate in the
// mask differs from the previous tile of this core (or this is the core's first tile of the
// program). Its result lives on in local memory between tiles. Bit 7 alone: first tile only.
//
// flags: bit 0 accumulate (reduce, matmul): combine with what xd holds, unless `first chunk`
//        bit 1 run only on the first chunk;  bit 2 run only on the last chunk
//        bit 3 accumulate always, even on the first chunk (matmul over unrolled k blocks)
//        bit 4 stream, a hint: xd is too large to be read back from a cache, so its stores need not
//              take up room there
//        bit 5 joined, a hint: may run together with the next instruction, a strip of vectors at a
//              time (see strips.h)
//        bit 6 transient, a hint: only the next joined instruction that is no load of halves reads
//              xd; its place need not be written
//        bit 7 rows, a hint: may run together with the next instruction, a few rows at a time (see
//              row_blocks.h)
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/dtype.h"
#include "kernels/window.h"

namespace dvm {

enum class Unit : uint8_t { scalar, vector, cube, dma };

// Operand roles. `out`/`in` are tiles (two words each); the rest are one word each.
enum class Form : uint8_t {
  sync,            // from:8 | to:8 | event:8
  load,            // out xd (local), in src (pointer)
  store,           // out dst (pointer), in xn (local or immediate)
  gather,          // out xd, in src (pointer), in index (i64), word axis_stride, word limit
  pack_b,          // out xd: outer = panel stride; in src: middle = k stride, inner = n stride;
                   //   e1 = k, e2 = n
  pack_b_stored,   // as pack_b; xd keeps the storage dtype
  pack_b_bundles,  // as pack_b; xd in bundles of steps of k, as are its strides
  pack_a_bundles,  // out xd: middle = row stride in bundles; in src (pointer or local): middle =
                   // row
                   //   stride, inner = k stride. e1 = m, e2 = k
  pack_patches,    // out xd: middle = row stride, inner = 1; in images (pointer): no strides; in
                   //   number (integer pointer, strides = coefficients): middle; window.
                   //   e1 = windows, e2 = elements of a patch
  pool,            // out xd, in images, in number, window (kWindowWords words, see window.h)
  depthwise,       // out xd, in images, in number, in xw (pointer), window
  prefetch,        // in src (pointer)
  matmul,          // out xd: middle = row stride; in xa: middle = row stride, inner = k stride (1);
                   //   in xb: outer = panel stride, middle = k stride, inner = n stride: 1, or any
                   //   where the k stride is 1. e0 = m, e1 = k, e2 = n
  matmul_clamp,    // as matmul; in xc: middle = row stride, or 0; words low, high. e0 = m, e2 = n
  matmul_widen,    // as matmul; xb in its storage dtype, in whole panels
  matmul_bundles,  // as matmul_widen; xa and xb in bundles, e1 counts bundles
  unary,
  test,
  narrow,  // out, in
  cast_f32,
  cast_f64,
  cast_i32,
  cast_i64,
  cast_b8,      // out, in
  iota,         // out xd, in base (pointer, strides = coefficients)
  check_index,  // out, in, word limit
  binary,
  compare,  // out, in, in
  select,   // out, in condition (b8), in, in
  reduce,   // out xd [M,1,N], in xn [M,size,N]; e0 = M, e1 = size, e2 = N
};

enum class Space : uint32_t { local = 0, pointer = 1, immediate = 2 };
inline constexpr uint32_t kSpaceShift = 30;
inline constexpr uint32_t kAddressMask = (1u << kSpaceShift) - 1;

struct Head {
  uint16_t opcode;
  uint8_t words, changed_mask, flags, e0, e1, e2;
};
static_assert(sizeof(Head) == 8);

inline constexpr uint8_t kAccumulate = 1, kFirstChunk = 2, kLastChunk = 4, kAccumulateAlways = 8,
                         kStream = 16, kJoined = 32, kTransient = 64, kRows = 128;
inline constexpr uint8_t kChunks = kFirstChunk | kLastChunk;
inline constexpr uint8_t kFirstTileOnly = 0x80;

struct Operand {
  uint32_t address;
  int32_t inner_stride, outer_stride, middle_stride;

  Space space() const { return static_cast<Space>(address >> kSpaceShift); }
  uint32_t offset() const { return address & kAddressMask; }
};
static_assert(sizeof(Operand) == 16);

constexpr uint16_t opcode_of(int family, DType dtype) {
  return static_cast<uint16_t>(family * 16 + static_cast<int>(dtype));
}

enum class Family : uint16_t {
#define DVM_INSN(name, unit, form, dtypes, meaning) name,
#include "vm/isa.def"
#undef DVM_INSN
  count_
};
inline constexpr int kFamilies = static_cast<int>(Family::count_);

constexpr uint16_t opcode_of(Family family, DType dtype) {
  return opcode_of(static_cast<int>(family), dtype);
}

// Dtype lists as bit masks over DType.
namespace dtype_list {
constexpr uint16_t bit(DType d) { return static_cast<uint16_t>(1u << static_cast<int>(d)); }
inline constexpr uint16_t NONE = bit(DType::f32);  // one opcode; the dtype is not printed
inline constexpr uint16_t B8 = bit(DType::b8), I64 = bit(DType::i64);
inline constexpr uint16_t FLOATS = bit(DType::f32) | bit(DType::f64);
inline constexpr uint16_t INTEGERS = bit(DType::i32) | bit(DType::i64);
inline constexpr uint16_t NUMBER = FLOATS | INTEGERS;
inline constexpr uint16_t REGISTER = NUMBER | B8;
inline constexpr uint16_t BITS = INTEGERS | B8;
inline constexpr uint16_t STORAGE = (1u << kDTypes) - 1;
inline constexpr uint16_t BF16 = bit(DType::bf16), HALVES = bit(DType::f16) | BF16;
inline constexpr uint16_t ROUNDED = bit(DType::f32) | HALVES;
inline constexpr uint16_t BYTES = bit(DType::i32) | bit(DType::i8) | bit(DType::u8);
inline constexpr uint16_t BUNDLED = ROUNDED | BYTES, MULTIPLIED = BF16 | bit(DType::i8);
inline constexpr uint16_t NARROW = STORAGE & static_cast<uint16_t>(~REGISTER);
}  // namespace dtype_list

// Small and here, since every step of the run-time compiler asks for it; the names are apart.
struct FamilyInfo {
  Unit unit;
  Form form;
  uint16_t dtypes;
};
inline constexpr FamilyInfo kFamilyTable[] = {
#define DVM_INSN(name, unit, form, dtypes, meaning) {Unit::unit, Form::form, dtype_list::dtypes},
#include "vm/isa.def"
#undef DVM_INSN
};
constexpr const FamilyInfo& info_of(Family family) {
  return kFamilyTable[static_cast<int>(family)];
}
const char* name_of(Family family);

constexpr bool has_window(Form form) {
  return form == Form::pack_patches || form == Form::pool || form == Form::depthwise;
}
constexpr bool is_matmul(Form form) {
  return form == Form::matmul || form == Form::matmul_clamp || form == Form::matmul_widen ||
         form == Form::matmul_bundles;
}
// B in the dtype of the arithmetic, whose last panel may be ragged.
constexpr bool has_plain_b(Form form) { return form == Form::matmul || form == Form::matmul_clamp; }
constexpr bool is_pack_b(Form form) {
  return form == Form::pack_b || form == Form::pack_b_stored || form == Form::pack_b_bundles;
}
// The operand of a form that is an integer, not a place; -1: none.
constexpr int integer_operand(Form form) {
  return form == Form::iota ? 1 : has_window(form) ? 2 : -1;
}

// Number of tile operands (two words each, outputs first) and of extra words of a form.
struct FormInfo {
  int outputs, inputs, extra_words;
};
constexpr FormInfo form_info(Form form) {
  switch (form) {
    case Form::sync: return {0, 0, 1};
    case Form::prefetch: return {0, 1, 0};
    case Form::gather: return {1, 2, 2};
    case Form::check_index: return {1, 1, 1};
    case Form::pack_patches:
    case Form::pool: return {1, 2, kWindowWords};
    case Form::depthwise: return {1, 3, kWindowWords};
    case Form::matmul:
    case Form::matmul_widen:
    case Form::matmul_bundles:
    case Form::binary:
    case Form::compare: return {1, 2, 0};
    case Form::matmul_clamp: return {1, 3, 2};
    case Form::select: return {1, 3, 0};
    default: return {1, 1, 0};
  }
}

// As wide as a bundle, whose bits say nothing as a number.
inline constexpr DType kBundle = DType::i32;

// Steps of k in a bundle that is made, or multiplied, of elements of a dtype.
constexpr int64_t bundle_steps(DType dtype) {
  return dtype_list::BYTES & dtype_list::bit(dtype) ? 4 : 2;
}

// Dtype of an operand's elements (outputs first) of an instruction with this form and dtype.
constexpr DType operand_dtype(Form form, DType dtype, int operand) {
  if (operand == 0) {
    switch (form) {
      case Form::load:
      case Form::gather:
      case Form::pack_b:
      case Form::pack_patches:
      case Form::matmul_widen:
      case Form::matmul_bundles:
      case Form::narrow: return register_dtype(dtype);
      case Form::pack_b_bundles:
      case Form::pack_a_bundles: return kBundle;
      case Form::test:
      case Form::compare:
      case Form::cast_b8: return DType::b8;
      case Form::cast_f32: return DType::f32;
      case Form::cast_f64: return DType::f64;
      case Form::cast_i32: return DType::i32;
      case Form::cast_i64: return DType::i64;
      default: return dtype;
    }
  }
  if (form == Form::store || form == Form::narrow) return register_dtype(dtype);
  if (form == Form::matmul_bundles) return kBundle;
  if (form == Form::matmul_widen && operand == 1) return register_dtype(dtype);
  if (form == Form::gather && operand == 2) return DType::i64;
  if (has_window(form) && operand == 2) return DType::i64;
  if (form == Form::select && operand == 1) return DType::b8;
  return dtype;
}

}  // namespace dvm
