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
//   two places byte offset into local memory in the tiles of even number in the core's share, and
//              `outer_stride` bytes behind it in those of odd number: what is loaded for a tile
//              leaves alone what the tile before it reads
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

// Of instructions: those of one queue run in order, queues beside one another. On a device with
// one queue all are it.
enum class Queue : uint8_t { scalar, vector, cube, mte1, mte2, mte3, fixp };
inline constexpr int kQueues = 7;

constexpr Unit unit_of(Queue queue) {
  constexpr Unit units[] = {Unit::scalar, Unit::vector, Unit::cube, Unit::dma,
                            Unit::dma,    Unit::dma,    Unit::dma};
  return units[static_cast<int>(queue)];
}

enum class Form : uint8_t {
#define DVM_FORM(name, ...) name,
#include "vm/forms.def"
  count_
};

// The columns of forms.def.
enum class Role : uint8_t { writes, updates, reads };
enum class Place : uint8_t { tile, value, memory, anywhere, integer, l1, l0a, l0b, l0c, bias };
enum class Type : uint8_t { own, in_register, bundles, f32, f64, i32, i64, b8, i8, u8 };
enum class Walk : uint8_t {
  elements,
  folded,
  rows,
  bundled_rows,
  panels,
  product,
  product_rows,
  columns,
  panel_columns,
  panel_blocks,
  transformed,
  steps,
  row,
  table
};
enum class Extra : uint8_t {
  none,
  event,
  limit,
  gather,
  window,
  ending,
  levels,
  window_ending,
  window_levels,
  block
};

struct OperandInfo {
  Role role;
  Place place;
  Type type;
  Walk walk;
};

enum class Space : uint32_t { local = 0, pointer = 1, immediate = 2, two_places = 3 };
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
#define DVM_INSN(name, queue, form, dtypes, meaning) name,
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
inline constexpr uint16_t F32 = bit(DType::f32);
inline constexpr uint16_t FLOATS = bit(DType::f32) | bit(DType::f64);
inline constexpr uint16_t INTEGERS = bit(DType::i32) | bit(DType::i64);
inline constexpr uint16_t NUMBER = FLOATS | INTEGERS;
inline constexpr uint16_t REGISTER = NUMBER | B8;
inline constexpr uint16_t BITS = INTEGERS | B8;
inline constexpr uint16_t STORAGE = (1u << kDTypes) - 1;
inline constexpr uint16_t BF16 = bit(DType::bf16), HALVES = bit(DType::f16) | BF16;
inline constexpr uint16_t ROUNDED = bit(DType::f32) | HALVES;
inline constexpr uint16_t BYTES = bit(DType::i32) | bit(DType::i8) | bit(DType::u8);
inline constexpr uint16_t I8 = bit(DType::i8);
inline constexpr uint16_t BUNDLED = ROUNDED | BYTES, MULTIPLIED = BF16 | I8;
inline constexpr uint16_t F16 = bit(DType::f16);
inline constexpr uint16_t NUMBER_F16 = NUMBER | F16, REGISTER_F16 = REGISTER | F16;
inline constexpr uint16_t WHOLE = REGISTER | I8, SIGNED = NUMBER_F16 | I8;
inline constexpr uint16_t ORDERED = REGISTER_F16 | I8;
inline constexpr uint16_t MOVED = REGISTER | HALVES;
inline constexpr uint16_t TABLED = B8 | bit(DType::i8) | bit(DType::u8);
inline constexpr uint16_t NARROW = STORAGE & static_cast<uint16_t>(~REGISTER);
}  // namespace dtype_list

// Small and here, since every step of the run-time compiler asks for it; the names are apart.
struct FamilyInfo {
  Queue queue;
  Form form;
  uint16_t dtypes;
};
inline constexpr FamilyInfo kFamilyTable[] = {
#define DVM_INSN(name, queue, form, dtypes, meaning) {Queue::queue, Form::form, dtype_list::dtypes},
#include "vm/isa.def"
#undef DVM_INSN
};
constexpr const FamilyInfo& info_of(Family family) {
  return kFamilyTable[static_cast<int>(family)];
}
const char* name_of(Family family);

inline constexpr int kMostOperands = 6;
inline constexpr int kEndingWords = 4;

// What a number is quantised to: integers from low to high, at most so far from 0, of which `zero`
// stands for 0.
struct Levels {
  int64_t low, high, zero;

  constexpr Levels moved(int64_t more) const { return {low + more, high + more, zero + more}; }
};
inline constexpr int kLevelWords = sizeof(Levels) / sizeof(uint64_t);
inline constexpr int64_t kFarthestLevel = int64_t{1} << 22;  // sums of two are floats
// Of bytes: what is rounded to them is narrowed to 16 bits before the zero point is added.
inline constexpr int64_t kFarthestZeroOfBytes = 1 << 14;
constexpr bool are_bytes(const Levels& levels, DType dtype) {
  const int64_t least = dtype == DType::i8 ? -128 : 0;
  return levels.low >= least && levels.high <= least + 255 &&
         levels.zero >= -kFarthestZeroOfBytes && levels.zero <= kFarthestZeroOfBytes;
}

// What a form declares: operands (two words each, outputs first) and the words behind them.
struct FormInfo {
  int outputs = 0, inputs = 0, extra_words = 0;
  Extra extra = Extra::none;
  OperandInfo operands[kMostOperands] = {};

  constexpr int operand_count() const { return outputs + inputs; }
  constexpr int words() const { return 1 + 2 * operand_count() + extra_words; }
};

namespace form_table {
using enum Role;
using enum Place;
using enum Type;
using enum Walk;

constexpr int words_of(Extra extra) {
  constexpr int words[] = {0,
                           1,
                           1,
                           2,
                           kWindowWords,
                           kEndingWords,
                           kLevelWords,
                           kWindowWords + kEndingWords,
                           kWindowWords + kLevelWords,
                           2};
  return words[static_cast<int>(extra)];
}

template <int Count>
constexpr FormInfo info_of_row(Extra extra, const OperandInfo (&operands)[Count]) {
  static_assert(Count <= kMostOperands + 1);
  FormInfo info{0, 0, words_of(extra), extra};
  for (int k = 0; k + 1 < Count; ++k) {  // the last one ends the list
    info.operands[k] = operands[k];
    ++(operands[k].role == reads ? info.inputs : info.outputs);
  }
  return info;
}

inline constexpr FormInfo kForms[] = {
#define DVM_FORM(name, extra, ...) info_of_row(Extra::extra, {__VA_ARGS__ __VA_OPT__(, ){}}),
#include "vm/forms.def"
};
}  // namespace form_table

constexpr const FormInfo& form_info(Form form) {
  return form_table::kForms[static_cast<int>(form)];
}
constexpr const FormInfo& form_info(Family family) { return form_info(info_of(family).form); }

// The words of a window come before other ones.
constexpr bool has_window(const FormInfo& form) {
  return form.extra == Extra::window || form.extra == Extra::window_ending ||
         form.extra == Extra::window_levels;
}
constexpr bool has_window(Form form) { return has_window(form_info(form)); }
constexpr bool weighs_bytes(Form form) {
  return form == Form::depthwise_bytes || form == Form::depthwise_quantize;
}
constexpr bool weighs_windows(Form form) { return form == Form::depthwise || weighs_bytes(form); }
constexpr bool has_ending(const FormInfo& form) {
  return form.extra == Extra::ending || form.extra == Extra::window_ending;
}
constexpr bool has_ending(Form form) { return has_ending(form_info(form)); }
constexpr bool has_levels(const FormInfo& form) {
  return form.extra == Extra::levels || form.extra == Extra::window_levels;
}
constexpr bool has_levels(Form form) { return has_levels(form_info(form)); }
constexpr bool is_matmul(Form form) {
  for (const OperandInfo& operand : form_info(form).operands) {
    if (operand.role == Role::writes) continue;
    if (operand.walk == Walk::columns || operand.walk == Walk::panel_columns ||
        operand.walk == Walk::panel_blocks || operand.walk == Walk::transformed) {
      return true;
    }
  }
  return false;
}
// Every output element depends on the input elements at the same loop coordinates only.
constexpr bool is_elementwise(Family family) {
  const FamilyInfo& info = info_of(family);
  return (info.queue == Queue::vector || info.form == Form::lookup) &&
         form_info(info.form).operands[0].walk == Walk::elements;
}

// What it reads or writes in local memory lies there in 16 bits: of devices that compute so, or
// move numbers of which nothing is computed.
constexpr bool is_in_halves(Family family, DType dtype) {
  const FamilyInfo& info = info_of(family);
  switch (info.form) {
    case Form::load_stored:
    case Form::store_stored:
    case Form::gather_stored: return true;
    default: return info.queue == Queue::vector && info.form != Form::narrow && is_half(dtype);
  }
}

// Where an instruction's operand lies in its words, and what stands behind the operands.
constexpr const uint64_t* operand_words(const uint64_t* words, int k) { return words + 1 + 2 * k; }
constexpr const uint64_t* extra_words(Form form, const uint64_t* words) {
  return operand_words(words, form_info(form).operand_count());
}
// What results end as, by numbers or as levels, behind a window.
constexpr const uint64_t* ending_words(Form form, const uint64_t* words) {
  return extra_words(form, words) + (has_window(form) ? kWindowWords : 0);
}
inline Levels levels_of(Form form, const uint64_t* words) {
  Levels levels;
  std::memcpy(&levels, ending_words(form, words), sizeof levels);
  return levels;
}
inline Operand operand_of(const uint64_t* words, int k) {
  Operand operand;
  std::memcpy(&operand, operand_words(words, k), sizeof operand);
  return operand;
}
inline Head head_of(const uint64_t* words) {
  Head head;
  std::memcpy(&head, words, sizeof head);
  return head;
}
constexpr Family family_of(const Head& head) { return static_cast<Family>(head.opcode / 16); }
constexpr DType dtype_of(const Head& head) { return static_cast<DType>(head.opcode % 16); }

// As wide as a bundle, whose bits say nothing as a number.
inline constexpr DType kBundle = DType::i32;

// Steps of k in a bundle that is made, or multiplied, of elements of a dtype.
constexpr int64_t bundle_steps(DType dtype) {
  return dtype_list::BYTES & dtype_list::bit(dtype) ? 4 : 2;
}

// Blocks of levels of so many bits: how many are in a word of a panel, what counts as 0 where there
// are no zeros, and the most steps of k that a block has.
constexpr bool are_level_bits(int64_t bits) { return bits == 2 || bits == 4 || bits == 8; }
constexpr int64_t word_levels(int64_t bits) { return 32 / bits; }
constexpr int64_t middle_level(int64_t bits) { return int64_t{1} << (bits - 1); }
inline constexpr int64_t kMostBlock = int64_t{1} << 16;

// Dtype of an operand's elements (outputs first) of an instruction with this form and dtype.
constexpr DType operand_dtype(Form form, DType dtype, int operand) {
  switch (form_info(form).operands[operand].type) {
    case Type::in_register: return register_dtype(dtype);
    case Type::bundles: return kBundle;
    case Type::f32: return DType::f32;
    case Type::f64: return DType::f64;
    case Type::i32: return DType::i32;
    case Type::i64: return DType::i64;
    case Type::b8: return DType::b8;
    case Type::i8: return DType::i8;
    case Type::u8: return DType::u8;
    default: return dtype;
  }
}

// The local memories of a core. Offsets count through all of them: those of one begin where the
// ones before it end (Target::memory_begin). A device with one has the first.
enum class Memory : uint8_t { main, l1, l0a, l0b, l0c, bias };
inline constexpr int kMemories = 6;

constexpr Memory memory_of(Place place) {
  switch (place) {
    case Place::l1: return Memory::l1;
    case Place::l0a: return Memory::l0a;
    case Place::l0b: return Memory::l0b;
    case Place::l0c: return Memory::l0c;
    case Place::bias: return Memory::bias;
    default: return Memory::main;
  }
}

}  // namespace dvm
