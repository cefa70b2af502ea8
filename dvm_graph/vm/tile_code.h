// Tile code: a kernel's instructions before local memory is laid out. Operands name buffers and
// pointer registers; the allocator gives buffers their offsets, the encoder makes words of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/normalise.h"
#include "vm/isa.h"
#include "vm/program.h"

namespace dvm {

struct TileBuffer {
  int64_t bytes = 0;
  bool kept = false;    // lives from tile to tile: never shares its memory
  int64_t offset = -1;  // set by the allocator
  Memory memory = Memory::main;
  bool two_places = false;  // one for the tiles of even number, one for the others
};

struct TileOperand {
  Space space = Space::local;
  int32_t index = 0;   // buffer, or pointer register
  int32_t offset = 0;  // bytes into the buffer
  int32_t inner = 0, outer = 0, middle = 0;

  bool operator==(const TileOperand&) const = default;

  // Lies in the place of index and offset, which it has none of.
  uint64_t immediate() const {
    return uint64_t{static_cast<uint32_t>(offset)} << 32 | static_cast<uint32_t>(index);
  }
  static TileOperand of_immediate(uint64_t bits) {
    return {Space::immediate, static_cast<int32_t>(bits), static_cast<int32_t>(bits >> 32)};
  }
};

inline constexpr int kMostExtra = std::max(kLevelWords, kEndingWords);  // words behind a window

struct TileInstruction {
  Family family = Family::v_copy;
  DType dtype = DType::f32;
  uint8_t changed_mask = 0, flags = 0;
  uint8_t extents[3] = {0, 0, 0};
  uint8_t operand_count = 0;
  TileOperand operands[kMostOperands];  // outputs first
  int32_t window = -1;                  // index into TileCode::windows
  uint64_t extra[kMostExtra] = {};
};

// What others begin as: a copy is faster than one that is made.
inline constexpr TileInstruction kNoInstruction{};

inline bool is_reduction(const TileInstruction& instruction) {
  return info_of(instruction.family).form == Form::reduce;
}

// One axis of the domain as a tile sees it.
struct TileAxis {
  int64_t whole = 1, tile = 1;
  int dim = -1;  // grid dim; -1: one tile covers the axis
  OpenAxis open = {};
  // Tiles at the end, or the only one, may be smaller.
  bool ragged() const { return dim >= 0 && (open.is_open() || whole % tile != 0); }
};

struct TileSpace {
  int rank = 0;
  TileAxis axes[kMaxDomainRank];

  // Grid dims whose coordinate moves along some of these axes.
  uint32_t dims_of(uint32_t axes_mask) const;
  int64_t volume(uint32_t axes_mask) const;  // of a full tile
};

struct TileCode {
  KernelKind kind = KernelKind::vector;
  TileSpace space;
  std::vector<GridDim> grid;
  int chunk_dim = 0;  // first grid dim of chunks; grid.size(): none
  std::vector<ExtentRegister> extents;
  std::vector<PointerRegister> pointers;
  std::vector<TileBuffer> buffers;
  std::vector<TileInstruction> instructions;
  std::vector<Window> windows;
  int64_t local_bytes = 0;  // set by the allocator
  int64_t preferred_claim = 1;
  uint8_t ahead[kAheadStreams] = {};  // as in the program's header
  uint8_t ahead_lines = 0;
  bool overflow = false;  // ran out of registers, or a stride out of range

  void clear();

  // Makes grid dim number grid.size() walk over the axis in steps of its tile; call it for the
  // outermost dim first. Axes that one tile covers get no dim, but for open ones.
  void add_dim(int axis);

  // Interned registers.
  uint8_t extent_register(int64_t multiplier, int dim);
  uint8_t extent_of(int axis);  // what a tile has of it
  // Part number `part`, from 0, of the extent of a grid dim cut into parts of `size`.
  uint8_t part_register(int64_t size, int dim, int64_t part);
  int32_t pointer_register(const PointerRegister& pointer);

  int32_t stride(int64_t wide) {  // as operands hold it
    const auto narrow = static_cast<int32_t>(wide);
    if (narrow != wide) overflow = true;
    return narrow;
  }

  uint8_t intern(const ExtentRegister& wanted);

  // What an extent register holds in a full tile; 0 stands for no loop, which is 1.
  int64_t full_extent(uint8_t extent) const;

  int32_t add_buffer(int64_t bytes, bool kept, Memory memory = Memory::main,
                     bool two_places = false);

  // Kept buffers that are written and read in the same tiles only need not live from one to the
  // next.
  void release_buffers();
};

// The pointer register for an access, shifted by `element_offset` elements.
PointerRegister pointer_of(const NormalAccess& access, const TileSpace& space,
                           int64_t element_offset);

}  // namespace dvm
