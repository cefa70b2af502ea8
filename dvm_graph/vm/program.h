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
// *Pairs*: a program of the cube unit and, right behind it in its stage, one or two of the vector
// unit: one goes on with the blocks of the product, one computes the rows of its left operand. A
// cube core and its vector cores (*lanes*) run them side by side, and hand over through *rings*:
// slots of the core's own in the workspace, in the order of `Handed` as their vector programs are.
// Each lane is at one ring.
//   sums: the cube unit fills a slot with a block, a lane takes it over. Group number g of a core's
//     share goes through slot g mod `slots`, and is the lane's whose number is g mod `lanes`.
//   rows: all lanes of the ring fill a slot, each a part of it, with what A is along a *line*: the
//     groups of `line_blocks` blocks that follow one another and multiply the same rows, as far as
//     they follow each other in the core's share. The cube unit takes it over for all of them.
// The tiles of a vector program that fill or empty a slot are `pieces` tiles, fewer at the end of
// its own lines of `line_tiles`.
//
// *Regions*: the blocks of a product as cores share them, that many along the last two dims before
// the chunks: cores that work side by side read the same rows and columns (vm/shares.h).
//
// Invariants: whole > 0, tile > 0, count == ceil(whole / tile) for every grid dim; tiles
// is the product of the counts; tile_group divides preferred_claim, which divides into whole
// claims.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
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

// What a cube core hands to its lanes, and what they hand to it.
enum class Handed : uint8_t { sums, rows };
inline constexpr Handed kHanded[] = {Handed::sums, Handed::rows};
inline constexpr int kRings = 2;

struct Ring {
  uint8_t pointer = 0;                // plus 1, the first pointer register of the slots
  uint8_t pointers = 0;               // and how many follow each other; 0: there is no ring
  uint8_t slots = 0;                  // for each cube core
  uint8_t first_lane = 0, lanes = 0;  // that are at it
  uint8_t unused[3] = {};
  int64_t bytes = 0;  // of a slot

  bool exists() const { return pointers > 0; }
  bool reaches(size_t register_number) const {
    return register_number + 1 >= pointer && register_number + 1 < size_t{pointer} + pointers;
  }
  bool has_lane(int64_t lane) const { return lane >= first_lane && lane < end_lane(); }
  int end_lane() const { return first_lane + lanes; }
};

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
  uint16_t regions[2] = {};     // of a product's blocks; 0: shares are lines
  int32_t line_blocks = 1;      // of the programs at a ring of rows: groups that share a slot
  Ring rings[kRings];           // of a pair, by what is handed over: of a vector program one
  int64_t pieces = 0;           // of a pair's vector program: tiles of a slot
  int64_t line_tiles = 0;       // of them, those along its last grid dims
  int64_t code_words = 0;       // size of the body
  int64_t tiles = 0;            // total
  int64_t tiles_per_core = 0;   // share of a core in the static partition of the target
  int64_t tile_group = 1;       // consecutive tiles that must run on one core, in order
  int64_t preferred_claim = 1;  // consecutive tiles that share once-loaded operands;
                                // a multiple of tile_group
  int64_t local_bytes = 0;      // local memory in use

  bool on_cube() const { return kind != KernelKind::vector; }
  const Ring& ring(Handed handed) const { return rings[static_cast<int>(handed)]; }
  Ring& ring(Handed handed) { return rings[static_cast<int>(handed)]; }
  bool in_pair() const { return ring(Handed::sums).exists() || ring(Handed::rows).exists(); }
  bool reaches_ring(size_t pointer) const {
    return rings[0].reaches(pointer) || rings[1].reaches(pointer);
  }
  // A half on lanes: it goes with the program before it that is none.
  bool beside_cube() const { return pieces > 0; }
  // It computes rows of A.
  bool feeds() const { return beside_cube() && ring(Handed::rows).exists(); }
  int lanes() const { return std::max(rings[0].end_lane(), rings[1].end_lane()); }
  // Of a cube program: those that go together, itself counted, and the number among them of the one
  // that a lane runs.
  size_t programs() const {
    return beside_cube() ? 1u : 1u + rings[0].exists() + rings[1].exists();
  }
  size_t program_of(int64_t lane) const {
    return !rings[0].has_lane(lane) && rings[0].exists() ? 2 : 1;
  }
  int64_t groups() const {
    if (!beside_cube()) return tiles / tile_group;
    return tiles / line_tiles * ceil_div(line_tiles, pieces) * line_blocks;
  }
  // The first tile of a group; of a vector program the one at which its slot begins.
  int64_t first_tile(int64_t group) const {
    if (!beside_cube()) return group * tile_group;
    const int64_t slot = group / line_blocks, each = ceil_div(line_tiles, pieces);
    return slot / each * line_tiles + slot % each * pieces;
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

// The words of a program, wherever they lie: they have to outlive this.
class ProgramView {
 public:
  explicit ProgramView(const uint64_t* words) : words_(words) {}

  const ProgramHeader& header() const { return *at<ProgramHeader>(0); }
  std::span<const GridDim> grid() const { return {at<GridDim>(grid_offset()), header().grid_rank}; }
  std::span<const ExtentRegister> extents() const {
    return {at<ExtentRegister>(extent_offset()), header().extent_registers};
  }
  std::span<const PointerRegister> pointers() const {
    return {at<PointerRegister>(pointer_offset()), header().pointer_registers};
  }
  std::span<const uint64_t> body() const {
    return {words_ + body_offset(), static_cast<size_t>(header().code_words)};
  }
  std::span<const uint64_t> words() const {
    return {words_, body_offset() + static_cast<size_t>(header().code_words)};
  }

 private:
  static constexpr size_t words_of(size_t bytes) { return bytes / sizeof(uint64_t); }
  template <typename T>
  const T* at(size_t word) const {
    return reinterpret_cast<const T*>(words_ + word);
  }
  size_t grid_offset() const { return words_of(sizeof(ProgramHeader)); }
  size_t extent_offset() const {
    return grid_offset() + header().grid_rank * words_of(sizeof(GridDim));
  }
  size_t pointer_offset() const { return extent_offset() + header().extent_registers; }
  size_t body_offset() const {
    return pointer_offset() + header().pointer_registers * words_of(sizeof(PointerRegister));
  }

  const uint64_t* words_;
};

class Program {
 public:
  ProgramView view() const { return ProgramView(words_.data()); }
  const ProgramHeader& header() const { return view().header(); }
  std::span<const GridDim> grid() const { return view().grid(); }
  std::span<const ExtentRegister> extents() const { return view().extents(); }
  std::span<const PointerRegister> pointers() const { return view().pointers(); }
  std::span<const uint64_t> body() const { return view().body(); }
  std::span<const uint64_t> words() const { return words_; }

  // Replaces the whole program; keeps the capacity.
  void assign(const ProgramHeader& header, std::span<const GridDim> grid,
              std::span<const ExtentRegister> extents, std::span<const PointerRegister> pointers,
              std::span<const uint64_t> body);
  // What comes before the body, to be changed. Sizes stay.
  struct Tables {
    ProgramHeader& header;
    std::span<GridDim> grid;
    std::span<PointerRegister> pointers;
  };
  Tables tables();

  void clear() { words_.clear(); }
  bool empty() const { return words_.empty(); }
  uint64_t* mutable_words() { return words_.data(); }  // for tests that break programs

  bool operator==(const Program&) const = default;

 private:
  std::vector<uint64_t> words_;
};

static_assert(std::has_unique_object_representations_v<ProgramHeader>);  // words are compared
static_assert(sizeof(ProgramHeader) % 8 == 0 && sizeof(GridDim) == 24);
static_assert(sizeof(ExtentRegister) == 8 && sizeof(PointerRegister) == 32 + 8 * kMaxGridRank);

}  // namespace dvm
