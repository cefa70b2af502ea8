#include "vm/stage_writer.h"

#include <algorithm>

#include "vm/encode.h"
#include "vm/pairs.h"

namespace dvm {

void StageWriter::choose_registers(NormalPlan& plan) {
  compute_halves(plan, target_, scratch_.halves);
  keep_bytes(plan, target_, scratch_.bytes);
  move_pairs(plan, target_);
}

bool StageWriter::vector_stage(NormalPlan& plan) {
  choose_registers(plan);
  return vector_stage(plan, peak_live_bytes(plan, target_));
}

bool StageWriter::vector_stage(const NormalPlan& plan, const LiveBytes& live, ForcedTile forced) {
  TileCode& code = scratch_.code;
  TilingRequest request{live, 1, forced};
  if (target_.joins && forced.axis < 0 && passes_by_rows(plan, target_)) {
    request.by_rows = true;
    code.clear();
    if (tile_whole(plan, target_, request, code) && tiled_stage(plan, 0, true)) return true;
    request.by_rows = false;
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt, request.shrink /= 2) {
    code.clear();
    if (!tile_whole(plan, target_, request, code)) break;
    if (tiled_stage(plan, 0)) return true;
    if (code.local_bytes <= target_.local_bytes) break;  // not a matter of memory
  }
  if (forced.axis >= 0) return false;
  request.shrink = 1;
  for (int attempt = 0; attempt < kAttempts; ++attempt, request.shrink /= 2) {
    code.clear();
    const auto chunk_axes = tile_chunks(plan, target_, request, code);
    if (chunk_axes && tiled_stage(plan, *chunk_axes)) return true;
  }
  return false;
}

bool StageWriter::tiled_stage(const NormalPlan& plan, uint32_t chunk_axes, bool by_rows) {
  TileCode& code = scratch_.code;
  if (code.overflow) return false;
  Lowering(plan, target_, code, scratch_.lowering, chunk_axes).lower_all();
  if (!dvm::take_steps(code, KernelKind::vector, target_, scratch_.steps, by_rows)) return false;
  out_.add_stage();
  add_program();
  return true;
}

void StageWriter::add_program() {
  const TileSpace& space = scratch_.code.space;
  for (int axis = 0; axis < space.rank; ++axis) {
    const TileAxis& a = space.axes[axis];
    if (a.open.is_open() && a.dim >= 0) out_.open.push_back({out_.program_count, a.dim, a.open});
  }
  encode(scratch_.code, target_, scratch_.body, out_.add_program());
}

void StageWriter::write(const ProgramHeader& as, Program& program) {
  encode(scratch_.code, target_, as, scratch_.body, program);
}

void StageWriter::back_to(const Mark& mark) {
  out_.stages.resize(mark.stages);
  out_.program_count = mark.programs;
  std::erase_if(out_.open, [&](const auto& dim) { return dim.program >= mark.programs; });
}

void StageWriter::need_workspace(int64_t bytes) {
  out_.workspace_bytes = std::max(out_.workspace_bytes, bytes);
}

}  // namespace dvm
