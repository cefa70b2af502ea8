#include "vm/tile_steps.h"

#include <algorithm>

#include "vm/move_loads.h"
#include "vm/prefetch.h"
#include "vm/repeat_cheap.h"
#include "vm/tile_loops.h"

namespace dvm {
namespace {

constexpr int kLeastClaimsPerCore = 4;  // of a vector kernel
constexpr double kClaimPerOnce = 32;    // work of a claim over what is done once per claim

// In vector elements, for a full tile.
double work_of(const TileInstruction& instruction, const TileCode& code, const Target& target) {
  double elements = 1;
  for (const uint8_t e : instruction.extents) {
    if (e == 0) continue;
    const ExtentRegister& extent = code.extents[e - 1];
    elements *= static_cast<double>(extent.dim < 0 ? extent.multiplier
                                                   : extent.value(code.grid[extent.dim].tile));
  }
  return elements + target.costs.in_vector_elements(target.costs.tile_start);
}

// Tiles that a core takes at a time. What is loaded once per claim should cost little next to the
// claim's tiles; otherwise small claims are better, for cores that are late or slow.
int64_t claim_of(const TileCode& code, const Target& target) {
  double once = 0, each = 0;
  for (const TileInstruction& instruction : code.instructions) {
    (instruction.changed_mask != 0 ? once : each) += work_of(instruction, code, target);
  }
  if (once == 0) return 1;
  int64_t tiles = 1;
  for (const GridDim& dim : code.grid) tiles *= dim.count;
  const int64_t claims = int64_t{kLeastClaimsPerCore} * target.cores;
  const auto most = static_cast<double>((tiles + claims - 1) / claims);
  return static_cast<int64_t>(std::min(most, 1 + once * kClaimPerOnce / std::max(each, 1.0)));
}

void join(TileCode& code, const Target& target, StepScratch& scratch) {
  repeat_cheap(code);
  scratch.done("repeat_cheap", code);
  move_loads(code, target);
  scratch.done("move_loads", code);
  join_strips(code, target, scratch.join);
  scratch.done("join_strips", code);
}

void allocate(TileCode& code, const Target& target, StepScratch& scratch) {
  if (target.places > 1 && !target.unified_memory) {
    scratch.buffers = code.buffers;
    separate_loads(code);
    allocate_local(code, target, scratch.allocator);
    if (code.local_bytes <= target.memory_end()) return;
    code.buffers = scratch.buffers;
  }
  allocate_local(code, target, scratch.allocator);
}

}  // namespace

bool take_steps(TileCode& code, KernelKind kind, const Target& target, StepScratch& scratch,
                bool by_rows) {
  if (code.overflow) return false;
  code.kind = kind;
  code.release_buffers();
  scratch.done("lower", code);
  finish_windows(code, target, scratch.finish);
  scratch.done("finish_windows", code);
  if (target.joins) {
    if (may_join(code)) join(code, target, scratch);
    const bool by_row_blocks = mark_row_blocks(code, target, scratch.rows);
    scratch.done("mark_row_blocks", code);
    if (by_rows && !by_row_blocks) return false;
    if (target.fetches) {
      fetch_ahead(code, target);
      scratch.done("fetch_ahead", code);
    }
    join_folds(code);
    scratch.done("join_folds", code);
  }
  allocate(code, target, scratch);
  scratch.done("allocate", code);
  if (code.overflow || code.local_bytes > target.memory_end()) return false;
  if (!target.in_order()) {
    synchronise(code, target, scratch.sync);
    if (code.overflow) return false;
    scratch.done("synchronise", code);
  }
  if (target.fetches && kind != KernelKind::vector) {
    prefetch_under_products(code, target);
    scratch.done("prefetch_under_products", code);
  }
  if (kind == KernelKind::vector) code.preferred_claim = claim_of(code, target);
  return true;
}

}  // namespace dvm
