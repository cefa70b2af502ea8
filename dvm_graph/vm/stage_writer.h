// Adds stages to a compiled kernel: vector plans are tiled, lowered, taken through all steps and
// encoded; the tile code of products, whose tiles others choose, from the steps on.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/bytes.h"
#include "vm/compile.h"
#include "vm/halves.h"
#include "vm/lower.h"
#include "vm/tile_steps.h"
#include "vm/tiling.h"

namespace dvm {

// Working memory of one program at a time.
struct StageScratch {
  TileCode code;
  LoweringScratch lowering;
  BytesScratch bytes;
  HalvesScratch halves;
  StepScratch steps;
  std::vector<uint64_t> body;
};

inline constexpr int kAttempts = 6;  // each with half the memory of the one before

class StageWriter {
 public:
  StageWriter(const Target& target, StageScratch& scratch, CompiledKernel& out)
      : target_(target), scratch_(scratch), out_(out) {}

  const Target& target() const { return target_; }
  StageScratch& scratch() { return scratch_; }
  TileCode& code() { return scratch_.code; }
  CompiledKernel& out() { return out_; }

  // The registers of a vector plan: halves and bytes, where they suffice.
  void choose_registers(NormalPlan& plan);

  // A stage of a vector plan. False: it fits in no tiles, and nothing was added.
  bool vector_stage(NormalPlan& plan);
  // Of one whose registers are chosen.
  bool vector_stage(const NormalPlan& plan, const LiveBytes& live, ForcedTile forced = {});
  // And whose tiles are, too: they are in the code. `chunk_axes` as for Lowering.
  bool tiled_stage(const NormalPlan& plan, uint32_t chunk_axes, bool by_rows = false);

  // Takes the tile code through the steps. False: it does not fit local memory.
  bool take_steps(KernelKind kind) {
    return dvm::take_steps(scratch_.code, kind, target_, scratch_.steps);
  }
  // The tile code as one more program of the stage at hand.
  void add_program();
  void add_program(const ProgramHeader& as) { write(as, out_.add_program()); }
  void write(const ProgramHeader& as, Program& program);

  // For what is tried: stages and programs behind the mark go away again.
  struct Mark {
    size_t stages;
    uint32_t programs;
  };
  Mark mark() const { return {out_.stages.size(), out_.program_count}; }
  void back_to(const Mark& mark);

  // At least so many bytes of workspace.
  void need_workspace(int64_t bytes);

 private:
  const Target& target_;
  StageScratch& scratch_;
  CompiledKernel& out_;
};

}  // namespace dvm
