#include "vm/resize.h"

#include <algorithm>
#include <bit>

#include "kernels/numbers.h"

namespace dvm {
namespace {

constexpr int64_t kLeastRoom = 64;  // elements
constexpr int64_t kSteps = 2;       // from a power of two to the next

void set_whole(const Program::Tables& program, int dim, int64_t whole) {
  GridDim& grid = program.grid[static_cast<size_t>(dim)];
  for (PointerRegister& pointer : program.pointers) {
    if (pointer.high == 0) continue;  // it has no bounds, or touches nothing
    const int64_t moved = (whole - grid.whole) * (pointer.steps[dim] / grid.tile);
    (pointer.steps[dim] > 0 ? pointer.high : pointer.low) += moved;
  }
  grid.whole = whole;
  grid.count = ceil_div(whole, grid.tile);
}

void count_tiles(const Program::Tables& program, const Target& target) {
  ProgramHeader& header = program.header;
  const int64_t claims = header.preferred_claim / header.tile_group;
  header.tiles = header.tile_group = 1;
  for (size_t d = 0; d < program.grid.size(); ++d) {
    header.tiles *= program.grid[d].count;
    if (d >= header.chunk_dim) header.tile_group *= program.grid[d].count;
  }
  const int64_t groups = header.tiles / header.tile_group;
  header.tiles_per_core = ceil_div(groups, target.cores_of(header.kind)) * header.tile_group;
  header.preferred_claim = claims * header.tile_group;
}

}  // namespace

int64_t room_for(int64_t extent) {
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(extent)));
  const int64_t step = std::max(power / kSteps, kLeastRoom);
  return ceil_div(extent, step) * step;
}

void resize(CompiledKernel& kernel, const KernelPlan& plan, const int64_t* dims,
            const Target& target) {
  for (const CompiledKernel::OpenDim& open : kernel.open) {
    const int64_t extent = dims[plan.extents[static_cast<size_t>(open.axis.axis)]];
    set_whole(kernel.programs[open.program].tables(), open.dim, extent * open.axis.unit);
  }
  for (uint32_t i = 0; i < kernel.program_count && !kernel.open.empty(); ++i) {
    count_tiles(kernel.programs[i].tables(), target);
  }
}

}  // namespace dvm
