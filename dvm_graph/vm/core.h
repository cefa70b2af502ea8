// One AI core as the VM sees it, and the table through which the VM calls a device's instructions.
// The VM knows no device; a device (npu/) fills in an InstructionTable.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "vm/isa.h"
#include "vm/splitting.h"

namespace dvm {

// Two cache lines: a core that fetches one may fetch the other.
inline constexpr size_t kLinePair = 128;

inline constexpr int kExtentRegisters = 64;
inline constexpr int kPointerRegisters = 64;

enum class TrapKind : uint8_t { none, index_out_of_range };

struct Trap {
  TrapKind kind = TrapKind::none;
  uint32_t pc = 0;  // word index in the program's body
  int64_t tile = 0;
  int64_t value = 0;  // the offending index
  int64_t limit = 0;
  // Filled in by the device: where it happened.
  int32_t core = 0;
  uint32_t task = 0;  // index among the programs that were launched together

  // With so many programs before those that it counts.
  Trap behind(size_t programs) const {
    Trap trap = *this;
    trap.task += static_cast<uint32_t>(programs);
    return trap;
  }
};

struct InstructionTimes;

// Memory that is worth fetching: operands of which a tile reads `bytes` from `tile` on, and the
// next one will read from `next` on.
struct Ahead {
  struct Stream {
    const std::byte* tile = nullptr;
    int64_t bytes = 0;
    int64_t row_bytes = 0;            // where the tile is worked on row by row
    const std::byte* next = nullptr;  // and after that: what is fetched next
  };
  Stream streams[2];  // the second may be missing
  int lines = 0;      // cache lines to fetch with every strip; 0: none
};

// Rows of memory that are read or stored after the next product.
struct Later {
  const std::byte* at = nullptr;
  int64_t stride = 0, row_bytes = 0, rows = 0;
};
inline constexpr int kMostLater = 4;

inline constexpr int64_t kScratchBytes = int64_t{1} << 20;

// Of these, what transformed pixels and their sums take (npu/host/transformed_windows.h): the
// core's cache has room for what is read and written beside them.
constexpr int64_t transform_bytes(int64_t local_bytes) {
  return std::min(kScratchBytes, local_bytes * 3 / 4);
}

// In lines of its own: every core writes its registers with every tile.
struct alignas(kLinePair) Core {
  std::byte* local = nullptr;  // local memory, 64-byte aligned
  size_t local_bytes = 0;
  std::byte* scratch = nullptr;       // kScratchBytes for the time of one instruction; null: none
  Splitting splitting;                // of floats, for which scratch memory is needed
  int32_t extents[kExtentRegisters];  // register 0 is 1
  std::byte* pointers[kPointerRegisters];
  bool first_chunk = true, last_chunk = true;
  Ahead ahead;              // joined instructions and d_prefetch_next fetch it
  Later later[kMostLater];  // the next product fetches so many of them
  int laters = 0;
  Trap trap;                                // a handler that traps sets kind, value and limit
  InstructionTimes* times = nullptr;        // not null: instructions are timed
  int64_t share_tile = 0, share_tiles = 0;  // number of the tile in the core's share, and its size
};

// `words` points at the instruction's head.
using Handler = void (*)(Core& core, const uint64_t* words);

// Runs a group of joined instructions (vm/strips.h), or several by rows (vm/row_blocks.h), the
// first of which `words` points at; returns the end of the last.
using JoinedHandler = const uint64_t* (*)(Core& core, const uint64_t* words);

struct InstructionTable {
  const char* name;                       // e.g. "x86-64-v4"
  int matmul_nr = 0;                      // panel width of B, f32 (f64: half of it)
  int matmul_mr = 0;                      // rows of the register block
  bool multiplies_bf16 = false;           // in hardware, twice as fast as f32
  bool multiplies_i8 = false;             // in hardware, four times as fast as f32
  Handler handlers[kFamilies * 16] = {};  // by opcode; null where the family lacks the dtype
  JoinedHandler joined = nullptr;         // null: joined instructions run one after the other
};

// Where an operand's first element lies. `word` points at the operand's two words.
inline std::byte* resolve(const Core& core, const uint64_t* word) {
  const auto address = static_cast<uint32_t>(*word);
  switch (static_cast<Space>(address >> kSpaceShift)) {
    case Space::local: return core.local + (address & kAddressMask);
    case Space::pointer: return core.pointers[address & kAddressMask];
    case Space::two_places:
      return core.local + (address & kAddressMask) +
             (core.share_tile % 2 != 0 ? static_cast<uint32_t>(word[1]) : 0);
    default: return reinterpret_cast<std::byte*>(const_cast<uint64_t*>(word + 1));
  }
}

}  // namespace dvm
