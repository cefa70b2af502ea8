#include "vm/compile.h"

#include <algorithm>

#include "kernels/normalise.h"
#include "kernels/numbers.h"
#include "vm/apart.h"
#include "vm/cube.h"
#include "vm/packed_product.h"
#include "vm/product.h"
#include "vm/product_kernel.h"
#include "vm/short_rows.h"
#include "vm/split_product.h"
#include "vm/split_reduction.h"
#include "vm/stage_writer.h"

namespace dvm {

struct CompilerScratch::State {
  NormalPlan plan;
  SplitReduction split;
  SplitProduct product;
  PackedProduct packed;
  ApartPlans apart;
  ProductScratch products;
  StageScratch stages;
};

CompilerScratch::CompilerScratch() : state_(std::make_unique<State>()) {}
CompilerScratch::~CompilerScratch() = default;
CompilerScratch::CompilerScratch(CompilerScratch&&) noexcept = default;
CompilerScratch& CompilerScratch::operator=(CompilerScratch&&) noexcept = default;

void CompilerScratch::observe(StepObserver observer) {
  state_->stages.steps.observer = std::move(observer);
}

void CompiledKernel::clear() {
  stages.clear();
  program_count = 0;
  workspace_bytes = 0;
  open.clear();
  one_memory = false;
}

void CompiledKernel::add_stage() { stages.push_back({program_count, 0}); }

Program& CompiledKernel::add_program() {
  if (programs.size() == program_count) programs.emplace_back();
  ++stages.back().program_count;
  return programs[program_count++];
}

namespace {

constexpr int64_t kLeastTiles[] = {4096, 64, 1};  // elements of tiles, where nothing else fits

class Compilation {
 public:
  Compilation(const Target& target, CompilerScratch::State& scratch, CompiledKernel& out)
      : target_(target),
        scratch_(scratch),
        out_(out),
        stages_(target, scratch.stages, out),
        products_(stages_, scratch.products) {}

  CompileStatus vector_kernel(bool has_fallback) {
    stages_.choose_registers(scratch_.plan);
    turn_short_rows(scratch_.plan, target_);
    const NormalPlan& plan = scratch_.plan;
    const LiveBytes live = peak_live_bytes(plan, target_);
    if (has_fallback && prefers_fallback(live)) return CompileStatus::costs_more;
    if (split_reduction(plan, target_, live, scratch_.split)) {
      if (plan.is_open()) return CompileStatus::wants_extents;
      if (split_kernel(live)) return CompileStatus::ok;
      out_.clear();
    }
    if (!stages_.vector_stage(plan, live)) return CompileStatus::does_not_fit;
    // Where memory ran short, tiles became narrower than predicted.
    const bool narrow = has_fallback && goes_across(plan, target_, stages_.code());
    return narrow ? CompileStatus::costs_more : CompileStatus::ok;
  }

  CompileStatus cube_kernel() {
    if (target_.has_cube_memories()) {
      const CompileStatus status = products_.compile(scratch_.plan);
      if (status != CompileStatus::does_not_fit) return status;
      out_.clear();
    }
    const CubeProblem problem(scratch_.plan, target_);
    const bool unlike = !problem.possible() && problem.beside().size() > 1;  // matrices B
    if (scratch_.plan.weighed && (unlike || problem.costs_more())) return CompileStatus::costs_more;
    if (scratch_.plan.is_open()) {
      const bool alone = problem.piece() == 0 && !pack_product(problem, scratch_.packed);
      if (!alone) return CompileStatus::wants_extents;
    } else if (split_product(problem, scratch_.product)) {
      if (split_cube_kernel()) return CompileStatus::ok;
      out_.clear();
    } else if (packed_cube_kernel(problem)) {
      return CompileStatus::ok;
    }
    out_.add_stage();
    return cube_program(problem) ? CompileStatus::ok : CompileStatus::does_not_fit;
  }

  // A stage for each operator.
  CompileStatus apart() {
    out_.clear();
    if (scratch_.plan.kind == KernelKind::vector) stages_.choose_registers(scratch_.plan);
    take_apart(scratch_.plan, scratch_.apart);
    for (NormalPlan& plan : scratch_.apart.plans) {
      if (!alone(plan)) return CompileStatus::does_not_fit;
    }
    stages_.need_workspace(scratch_.apart.workspace_bytes);
    return CompileStatus::ok;
  }

  // Each program has a grid dim for each open axis.
  bool all_open() const {
    const NormalPlan& plan = scratch_.plan;
    const auto axes =
        static_cast<uint32_t>(std::count_if(plan.open.begin(), plan.open.begin() + plan.rank,
                                            [](const OpenAxis& axis) { return axis.is_open(); }));
    return out_.open.size() == size_t{axes} * out_.program_count;
  }

 private:
  bool prefers_fallback(const LiveBytes& live) {
    const NormalPlan& plan = scratch_.plan;
    if (plan.reduced_axes() == 0) return false;
    TileCode& code = stages_.code();
    code.clear();
    TilingRequest request{.live = live};
    request.widens = false;
    return tile_whole(plan, target_, request, code) && goes_across(plan, target_, code);
  }

  bool split_kernel(const LiveBytes& live) {
    const SplitReduction& split = scratch_.split;
    if (!stages_.vector_stage(split.partial, live, split.piece)) return false;
    if (!stages_.vector_stage(split.join, peak_live_bytes(split.join, target_))) return false;
    out_.workspace_bytes = split.workspace_bytes;
    return true;
  }

  bool alone(NormalPlan& plan) {
    if (plan.kind != KernelKind::vector) return product_alone(plan);
    if (stages_.vector_stage(plan)) return true;
    for (const int64_t elements : kLeastTiles) {
      stages_.code().clear();
      if (stages_.tiled_stage(plan, tile_least(plan, elements, stages_.code()))) return true;
    }
    return false;
  }

  // A product whose k no block is short enough for is done in pieces, shorter and shorter ones
  // until they fit.
  bool product_alone(const NormalPlan& plan) {
    if (products_.one_stage(plan)) return true;
    const StageWriter::Mark nothing = stages_.mark();
    out_.add_stage();
    if (cube_program({plan, target_})) return true;
    const int64_t used = scratch_.apart.workspace_bytes;
    const int64_t steps = plan.extents[plan.k_axis] / kPieceStep;
    for (int64_t depth = steps / 2; depth > 0; depth /= 2) {
      stages_.back_to(nothing);
      if (!split_product(plan, depth * kPieceStep, used, scratch_.product)) return false;
      if (split_cube_kernel()) return true;
    }
    return false;
  }

  bool split_cube_kernel() {
    SplitProduct& split = scratch_.product;
    out_.add_stage();
    if (!cube_program({split.partial, target_})) return false;
    if (split.has_rest && !cube_program({split.rest, target_})) return false;
    if (!stages_.vector_stage(split.join)) return false;
    stages_.need_workspace(split.workspace_bytes);
    return true;
  }

  // B is packed first.
  bool packed_cube_kernel(const CubeProblem& problem) {
    const auto packed = pack_product(problem, scratch_.packed);
    if (!packed) return false;
    stages_.code().clear();
    lower_packing(scratch_.packed, problem, stages_.code());
    const StageWriter::Mark nothing = stages_.mark();
    if (stages_.take_steps(KernelKind::vector)) {
      out_.add_stage();
      stages_.add_program();
      out_.add_stage();
      out_.workspace_bytes = scratch_.packed.workspace_bytes;
      if (cube_program(*packed)) return true;
    }
    out_.workspace_bytes = 0;
    stages_.back_to(nothing);
    return false;
  }

  // A program of the stage at hand.
  bool cube_program(const CubeProblem& problem) {
    double shrink = 1;
    for (int attempt = 0; attempt < kAttempts; ++attempt, shrink /= 2) {
      stages_.code().clear();
      if (!lower_cube(problem, shrink, stages_.code(), stages_.scratch().lowering)) continue;
      if (stages_.take_steps(problem.plan().kind)) {
        stages_.add_program();
        out_.one_memory |= target_.has_cube_memories();
        return true;
      }
    }
    return false;
  }

  const Target& target_;
  CompilerScratch::State& scratch_;
  CompiledKernel& out_;
  StageWriter stages_;
  ProductKernel products_;
};

// What is read by windows or from packed panels along an axis counts on its extent elsewhere, too.
bool may_stay_open(const NormalPlan& plan, const Target& target) {
  if (target.has_cube_memories() || !plan.windows.empty()) return false;
  uint32_t open = 0;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (plan.open[axis].is_open()) open |= bit(axis);
  }
  return std::ranges::none_of(plan.nodes, [&](const NormalNode& node) {
    const bool panels = node.access >= 0 && plan.accesses[node.access].packed_panels;
    return panels && (node.axes & open) != 0;
  });
}

void fetch(const void* from, size_t bytes) {
  constexpr size_t kCacheLine = 64;
  const auto* at = static_cast<const std::byte*>(from);
  for (size_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(at + i);
}

// Between two compiles of a kernel its plan and its programs leave the caches. Asked for at once,
// they come at once; as they are read, they would come line by line.
void fetch(const KernelPlan& plan, const CompiledKernel& out) {
  fetch(plan.nodes.data(), plan.nodes.size() * sizeof(PlanNode));
  fetch(plan.accesses.data(), plan.accesses.size() * sizeof(Access));
  for (const Access& access : plan.accesses) fetch(access.strides.data(), 1);
  for (const Program& program : out.programs)
    fetch(program.words().data(), program.words().size_bytes());
}

}  // namespace

CompileStatus compile_kernel(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values,
                             const Target& target, CompilerScratch& scratch, CompiledKernel& out,
                             Apart apart, const int64_t* room) {
  fetch(plan, out);
  out.clear();
  CompilerScratch::State& state = scratch.state();
  if (!normalise(plan, dims, values, state.plan, room)) return CompileStatus::empty;
  const bool open = state.plan.is_open();
  if (open && !may_stay_open(state.plan, target)) return CompileStatus::wants_extents;
  if (target.has_cube_memories()) read_packed_rows(state.plan, target);
  Compilation compilation(target, state, out);
  CompileStatus status = CompileStatus::ok;
  if (apart == Apart::always) {
    status = CompileStatus::does_not_fit;
  } else if (state.plan.kind != KernelKind::vector) {
    status = compilation.cube_kernel();
  } else {
    status = compilation.vector_kernel(apart == Apart::never);
  }
  if (open && (status == CompileStatus::does_not_fit || !compilation.all_open())) {
    status = CompileStatus::wants_extents;
  }
  if (status == CompileStatus::does_not_fit && apart != Apart::never) {
    status = compilation.apart();
  }
  if (status != CompileStatus::ok) out.clear();
  return status;
}

}  // namespace dvm
