#include "vm/tile_code.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "vm/core.h"

namespace dvm {

uint32_t TileSpace::dims_of(uint32_t axes_mask) const {
  uint32_t dims = 0;
  for (int axis = 0; axis < rank; ++axis) {
    if ((axes_mask >> axis & 1) && axes[axis].dim >= 0) dims |= 1u << axes[axis].dim;
  }
  return dims;
}

int64_t TileSpace::volume(uint32_t axes_mask) const {
  int64_t elements = 1;
  for (int axis = 0; axis < rank; ++axis) {
    if (axes_mask >> axis & 1) elements *= axes[axis].tile;
  }
  return elements;
}

void TileCode::clear() {
  grid.clear();
  extents.clear();
  pointers.clear();
  buffers.clear();
  instructions.clear();
  windows.clear();
  chunk_dim = 0;
  local_bytes = 0;
  preferred_claim = 1;
  ahead[0] = ahead[1] = ahead_lines = 0;
  overflow = false;
}

void TileCode::add_dim(int axis) {
  TileAxis& a = space.axes[axis];
  if (a.tile >= a.whole && !a.open.is_open()) return;
  a.dim = static_cast<int>(grid.size());
  if (a.dim >= kMaxGridRank) overflow = true;
  grid.push_back({(a.whole + a.tile - 1) / a.tile, a.tile, a.whole});
}

uint8_t TileCode::extent_register(int64_t multiplier, int dim) {
  if (multiplier == 1 && dim < 0) return 0;
  if (multiplier > std::numeric_limits<int32_t>::max()) overflow = true;
  return intern({static_cast<int32_t>(multiplier), static_cast<int16_t>(dim), 0});
}

uint8_t TileCode::extent_of(int axis) {
  const TileAxis& a = space.axes[axis];
  return a.ragged() ? extent_register(1, a.dim) : extent_register(a.tile, -1);
}

uint8_t TileCode::part_register(int64_t size, int dim, int64_t part) {
  if (size > std::numeric_limits<int32_t>::max() || part >= std::numeric_limits<uint16_t>::max()) {
    overflow = true;
  }
  return intern(
      {static_cast<int32_t>(size), static_cast<int16_t>(dim), static_cast<uint16_t>(part + 1)});
}

uint8_t TileCode::intern(const ExtentRegister& wanted) {
  for (size_t r = 0; r < extents.size(); ++r) {
    if (extents[r] == wanted) return static_cast<uint8_t>(r + 1);
  }
  if (extents.size() + 1 >= kExtentRegisters) {
    overflow = true;
    return 0;
  }
  extents.push_back(wanted);
  return static_cast<uint8_t>(extents.size());
}

int32_t TileCode::pointer_register(const PointerRegister& pointer) {
  for (size_t r = 0; r < pointers.size(); ++r) {
    if (pointers[r].buffer != pointer.buffer || pointers[r].base != pointer.base) continue;
    if (std::memcmp(&pointers[r], &pointer, sizeof pointer) == 0) return static_cast<int32_t>(r);
  }
  if (pointers.size() >= kPointerRegisters) {
    overflow = true;
    return 0;
  }
  pointers.push_back(pointer);
  return static_cast<int32_t>(pointers.size() - 1);
}

int64_t TileCode::full_extent(uint8_t extent) const {
  if (extent == 0) return 1;
  const ExtentRegister& r = extents[extent - 1];
  return r.dim < 0 ? r.multiplier : r.value(grid[r.dim].tile);
}

int32_t TileCode::add_buffer(int64_t bytes, bool kept, Memory memory, bool two_places) {
  buffers.push_back({bytes, kept, -1, memory, two_places});
  return static_cast<int32_t>(buffers.size() - 1);
}

void TileCode::release_buffers() {
  constexpr uint8_t kWhen = kAccumulate | kChunks | kAccumulateAlways;
  if (std::ranges::none_of(instructions, &TileInstruction::changed_mask)) return;
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (!buffers[b].kept) continue;
    const TileInstruction* writer = nullptr;
    bool together = true;
    for (const TileInstruction& instruction : instructions) {
      for (int k = 0; k < instruction.operand_count; ++k) {
        const TileOperand& operand = instruction.operands[k];
        if (operand.space != Space::local || operand.index != static_cast<int32_t>(b)) continue;
        if (writer == nullptr) writer = &instruction;
        together &= instruction.changed_mask == writer->changed_mask &&
                    ((instruction.flags | writer->flags) & kWhen) == 0;
      }
    }
    buffers[b].kept = writer == nullptr || writer->changed_mask == 0 || !together;
  }
}

PointerRegister pointer_of(const NormalAccess& access, const TileSpace& space,
                           int64_t element_offset) {
  PointerRegister pointer;
  const int64_t bytes = access.element_bytes;
  pointer.buffer = access.value;
  pointer.base = (access.offset + element_offset) * bytes;
  int64_t low = access.offset * bytes, high = low;
  for (int axis = 0; axis < space.rank; ++axis) {
    const TileAxis& a = space.axes[axis];
    int64_t reach = access.strides[axis] * (a.whole - 1) * bytes;
    int64_t step = access.strides[axis] * a.tile * bytes;
    if (axis == access.step_axis && a.dim >= 0) {
      step += access.tile_step * bytes;
      reach += access.tile_step * bytes * ((a.whole - 1) / a.tile);
    }
    if (a.dim >= 0) pointer.steps[a.dim] = step;
    (reach < 0 ? low : high) += reach;
  }
  if (access.value == kPlainInteger || access.unread) return pointer;
  (access.gather_reach < 0 ? low : high) += access.gather_reach * bytes;
  pointer.low = low;
  pointer.high = high + bytes;
  return pointer;
}

}  // namespace dvm
