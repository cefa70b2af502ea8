// A program: the bytecode of one kernel for one shape (paper section 4, "Bytecode encoding").
//
// One vector of 64-bit words: the header below, the grid, the extent registers, the pointer
// registers and the body of instructions. A program holds no absolute address: pointer registers
// name buffers by index, so the same words run on other buffers of the same sizes.
//
// Grid: tiles are numbered row-major over the grid dims, the last dim fastest. Dims from
// `chunk_dim` on walk over the chunks of one reduction: their tiles form a *group* that one core
// runs in order, and `first chunk` / `last chunk` are the ends of a group.
//
// *Pairs*: a program of the cube unit and, right behind it in its stage, one of the vector unit
// that goes on with its blocks. A cube core and each of its vector cores (*lanes*) run both side by
// side: block after block goes through a ring of slots of the core's own in the workspace. Group
// number g of a core's share lies in slot g mod `ring_slots`, and is lane g mod `lanes`'s. The
// tiles of the vector program that make up a group are `pieces` tiles, fewer at the end of a line
// of `line_tiles` (0: all tiles are one line).
//
// *Regions*: the blocks of a product as cores share them, that many along the last two dims before
// the chunks: cores that work side by side read the same rows and columns (vm/shares.h).
//
// Invariants: whole > 0, 0 < tile <= whole, count == ceil(whole / tile) for every grid dim; tiles
// is the product of the counts; tile_group divides preferred_claim, which divides into whole
// claims.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/numbers.h"
#include "kernels/plan.h"
#include "vm/isa.h"

namespace dvm {

// Bits 0..6 of an instruction's changed_mask stand for grid dims; bit 7 for "first tile".
inline constexpr int kMaxGridRank = 7;

// Buffer indices that are not values of the model: this one and kPlainInteger (kernels/plan.h). A
// buffer table therefore starts with kReservedBuffers entries: `table = storage +
// kReservedBuffers`, table[kWorkspace] is the kernel's workspace (or null) and table[kPlainInteger]
// is null: a pointer register over it is an integer.
inline constexpr int32_t kWorkspace = -2;
inline constexpr int kReservedBuffers = 2;

inline constexpr int kAheadStreams = 2;

struct ProgramHeader {
  KernelKind kind = KernelKind::vector;
  uint8_t grid_rank = 0;
  uint8_t extent_registers = 0;   // defined ones: registers 1..n; register 0 is always 1
  uint8_t pointer_registers = 0;  // registers 0..n-1
  uint8_t chunk_dim = 0;          // first grid dim of the chunks; grid_rank: no chunks
  // A hint: pointer registers plus 1 of what the next tile is fetched through. Where there are
  // cache lines to fetch with every strip (strips.h), their tiles follow each other in memory,
  // without gaps, along the last grid dim; d_prefetch_next fetches through the first.
  uint8_t ahead[kAheadStreams] = {};
  uint8_t ahead_lines = 0;
  uint8_t ring_pointer = 0;     // of a pair: plus 1, the first pointer register of the slots
  uint8_t ring_pointers = 0;    // and how many follow each other; 0: of no pair
  uint8_t lanes = 0;            // of a pair
  uint8_t ring_slots = 0;       // of a pair, for each cube core
  uint16_t regions[2] = {};     // of a product's blocks; 0: shares are lines
  int64_t ring_bytes = 0;       // of a slot
  int64_t pieces = 0;           // of a pair's vector program: tiles of a group
  int64_t line_tiles = 0;       // of them, those along its last grid dim
  int64_t code_words = 0;       // size of the body
  int64_t tiles = 0;            // total
  int64_t tiles_per_core = 0;   // share of a core in the static partition of the target
  int64_t tile_group = 1;       // consecutive tiles that must run on one core, in order
  int64_t preferred_claim = 1;  // consecutive tiles that share once-loaded operands;
                                // a multiple of tile_group
  int64_t local_bytes = 0;      // local memory in use

  bool in_pair() const { return ring_pointers > 0; }
  bool reaches_ring(size_t pointer) const {
    return pointer + 1 >= ring_pointer && pointer + 1 < size_t{ring_pointer} + ring_pointers;
  }
  // The half that takes over blocks: it goes with the program before it.
  bool follows_cube() const { return pieces > 0; }
  int64_t groups() const {
    return follows_cube() ? tiles / line_tiles * ceil_div(line_tiles, pieces) : tiles / tile_group;
  }
  // The first tile of a group; of the one behind the last, where tiles end.
  int64_t first_tile(int64_t group) const {
    if (!follows_cube()) return group * tile_group;
    const int64_t each = ceil_div(line_tiles, pieces);
    return group / each * line_tiles + group % each * pieces;
  }
};

struct GridDim {
  int64_t count = 1, tile = 1, whole = 1;  // tiles, extent of a tile, extent of all tiles

  int64_t tail() const { return whole - (count - 1) * tile; }
  int64_t extent_at(int64_t coordinate) const { return coordinate + 1 == count ? tail() : tile; }
};

// Value: multiplier * (extent of grid dim `dim` at the tile), or the multiplier where dim is -1.
// With a `part`, counted from 1: what is left for that part where the extent is cut into parts of
// `multiplier`, which is 0 behind the last.
struct ExtentRegister {
  int32_t multiplier = 1;
  int16_t dim = -1;
  uint16_t part = 0;

  int64_t value(int64_t extent) const {
    if (part == 0) return multiplier * extent;
    return std::clamp<int64_t>(extent - int64_t{multiplier} * (part - 1), 0, multiplier);
  }
  bool operator==(const ExtentRegister&) const = default;
};

// Value: address of `buffer` + base + sum over dims of coordinate * step, in bytes.
// [low, high) are the bytes of the buffer that instructions may touch through this register, over
// all tiles (unused for plain integers).
struct PointerRegister {
  int64_t buffer = 0;
  int64_t base = 0;
  int64_t low = 0, high = 0;
  int64_t steps[kMaxGridRank] = {};
};

class Program {
 public:
  const ProgramHeader& header() const { return *at<ProgramHeader>(0); }
  std::span<const GridDim> grid() const { return {at<GridDim>(grid_offset()), header().grid_rank}; }
  std::span<const ExtentRegister> extents() const {
    return {at<ExtentRegister>(extent_offset()), header().extent_registers};
  }
  std::span<const PointerRegister> pointers() const {
    return {at<PointerRegister>(pointer_offset()), header().pointer_registers};
  }
  std::span<const uint64_t> body() const {
    return {words_.data() + body_offset(), static_cast<size_t>(header().code_words)};
  }
  std::span<const uint64_t> words() const { return words_; }

  // Replaces the whole program; keeps the capacity.
  void assign(const ProgramHeader& header, std::span<const GridDim> grid,
              std::span<const ExtentRegister> extents, std::span<const PointerRegister> pointers,
              std::span<const uint64_t> body);
  void clear() { words_.clear(); }
  bool empty() const { return words_.empty(); }
  uint64_t* mutable_words() { return words_.data(); }  // for tests that break programs

  bool operator==(const Program&) const = default;

 private:
  static constexpr size_t words_of(size_t bytes) { return bytes / sizeof(uint64_t); }
  template <typename T>
  const T* at(size_t word) const {
    return reinterpret_cast<const T*>(words_.data() + word);
  }
  size_t grid_offset() const { return words_of(sizeof(ProgramHeader)); }
  size_t extent_offset() const {
    return grid_offset() + header().grid_rank * words_of(sizeof(GridDim));
  }
  size_t pointer_offset() const { return extent_offset() + header().extent_registers; }
  size_t body_offset() const {
    return pointer_offset() + header().pointer_registers * words_of(sizeof(PointerRegister));
  }

  std::vector<uint64_t> words_;
};

static_assert(sizeof(ProgramHeader) % 8 == 0 && sizeof(GridDim) == 24);
static_assert(sizeof(ExtentRegister) == 8 && sizeof(PointerRegister) == 32 + 8 * kMaxGridRank);

}  // namespace dvm
