#include "vm/compile.h"

#include <algorithm>

#include "kernels/normalise.h"
#include "vm/allocate.h"
#include "vm/apart.h"
#include "vm/cube.h"
#include "vm/cut_product.h"
#include "vm/encode.h"
#include "vm/halves.h"
#include "vm/lower.h"
#include "vm/move_loads.h"
#include "vm/pair.h"
#include "vm/prefetch.h"
#include "vm/product.h"
#include "vm/repeat_cheap.h"
#include "vm/row_blocks.h"
#include "vm/split_product.h"
#include "vm/split_reduction.h"
#include "vm/strips.h"
#include "vm/sync.h"
#include "vm/tile_loops.h"
#include "vm/tiling.h"

namespace dvm {

struct CompilerScratch::State {
  NormalPlan plan;
  SplitReduction split;
  SplitProduct product;
  CutProduct cut, pair;
  ApartPlans apart;
  TileCode code;
  LoweringScratch lowering;
  HalvesScratch halves;
  JoinScratch join;
  RowScratch rows;
  AllocatorScratch allocator;
  std::vector<TileBuffer> buffers;
  SyncScratch sync;
  std::vector<uint64_t> body;
  StepObserver observer;
};

CompilerScratch::CompilerScratch() : state_(std::make_unique<State>()) {}
CompilerScratch::~CompilerScratch() = default;
CompilerScratch::CompilerScratch(CompilerScratch&&) noexcept = default;
CompilerScratch& CompilerScratch::operator=(CompilerScratch&&) noexcept = default;

void CompilerScratch::observe(StepObserver observer) { state_->observer = std::move(observer); }

void CompiledKernel::clear() {
  stages.clear();
  program_count = 0;
  workspace_bytes = 0;
  one_memory = false;
}

void CompiledKernel::add_stage() { stages.push_back({program_count, 0}); }

Program& CompiledKernel::add_program() {
  if (programs.size() == program_count) programs.emplace_back();
  ++stages.back().program_count;
  return programs[program_count++];
}

namespace {

constexpr int kAttempts = 6;            // each with half the memory of the one before
constexpr int kLeastClaimsPerCore = 4;  // of a vector kernel
constexpr double kClaimPerOnce = 32;    // work of a claim over what is done once per claim
constexpr int64_t kLeastTiles[] = {4096, 64, 1};  // elements of tiles, where nothing else fits

class Compilation {
 public:
  Compilation(const Target& target, CompilerScratch::State& scratch, CompiledKernel& out)
      : target_(target), scratch_(scratch), out_(out) {}

  CompileStatus vector_kernel(bool has_fallback) {
    halve(scratch_.plan);
    const NormalPlan& plan = scratch_.plan;
    const LiveBytes live = peak_live_bytes(plan, target_);
    if (has_fallback && prefers_fallback(live)) return CompileStatus::costs_more;
    if (split_reduction(plan, target_, live, scratch_.split)) {
      if (split_kernel(live)) return CompileStatus::ok;
      out_.clear();
    }
    return stage(plan, live, {}) ? CompileStatus::ok : CompileStatus::does_not_fit;
  }

  CompileStatus cube_kernel() {
    if (target_.has_cube_memories()) {
      const CompileStatus status = product_kernel();
      if (status != CompileStatus::does_not_fit) return status;
      out_.clear();
    }
    const CubeProblem problem(scratch_.plan, target_);
    const bool unlike = !problem.possible() && problem.beside().size() > 1;  // matrices B
    if (scratch_.plan.weighed && (unlike || problem.costs_more())) return CompileStatus::costs_more;
    if (split_product(problem, scratch_.product)) {
      if (split_cube_kernel()) return CompileStatus::ok;
      out_.clear();
    }
    out_.add_stage();
    return cube_program(problem) ? CompileStatus::ok : CompileStatus::does_not_fit;
  }

  // A stage for each operator.
  CompileStatus apart() {
    out_.clear();
    if (scratch_.plan.kind == KernelKind::vector) halve(scratch_.plan);
    take_apart(scratch_.plan, scratch_.apart);
    for (NormalPlan& plan : scratch_.apart.plans) {
      if (!alone(plan)) return CompileStatus::does_not_fit;
    }
    out_.workspace_bytes = std::max(out_.workspace_bytes, scratch_.apart.workspace_bytes);
    return CompileStatus::ok;
  }

 private:
  bool prefers_fallback(const LiveBytes& live) {
    const NormalPlan& plan = scratch_.plan;
    if (plan.reduced_axes() == 0) return false;
    scratch_.code.clear();
    return tile_whole(plan, target_, {live, 1, {}}, scratch_.code) &&
           reads_across(plan, target_, scratch_.code);
  }

  bool alone(NormalPlan& plan) {
    if (plan.kind != KernelKind::vector) return product_alone(plan);
    halve(plan);
    if (stage(plan, peak_live_bytes(plan, target_), {})) return true;
    for (const int64_t elements : kLeastTiles) {
      scratch_.code.clear();
      if (lower(plan, tile_least(plan, elements, scratch_.code))) return true;
    }
    return false;
  }

  // A product whose k no block is short enough for is done in pieces, shorter and shorter ones
  // until they fit.
  bool product_alone(const NormalPlan& plan) {
    if (product_stage(plan)) return true;
    const size_t stages = out_.stages.size();
    const uint32_t programs = out_.program_count;
    out_.add_stage();
    if (cube_program({plan, target_})) return true;
    const int64_t used = scratch_.apart.workspace_bytes;
    const int64_t steps = plan.extents[plan.k_axis] / kPieceStep;
    for (int64_t depth = steps / 2; depth > 0; depth /= 2) {
      out_.stages.resize(stages);
      out_.program_count = programs;
      if (!split_product(plan, depth * kPieceStep, used, scratch_.product)) return false;
      if (split_cube_kernel()) return true;
    }
    return false;
  }

  bool split_cube_kernel() {
    SplitProduct& split = scratch_.product;
    halve(split.join);
    out_.add_stage();
    if (!cube_program({split.partial, target_})) return false;
    if (split.has_rest && !cube_program({split.rest, target_})) return false;
    if (!stage(split.join, peak_live_bytes(split.join, target_), {})) return false;
    out_.workspace_bytes = std::max(out_.workspace_bytes, split.workspace_bytes);
    return true;
  }

  void halve(NormalPlan& plan) { compute_halves(plan, target_, scratch_.halves); }

  // On a cube unit with memories of its own: in a program, else in stages before and behind it.
  CompileStatus product_kernel() {
    NormalPlan& plan = scratch_.plan;
    if (product_stage(plan)) return CompileStatus::ok;
    if (plan.weighed) return CompileStatus::costs_more;  // its fallback keeps rows in memory
    CutProduct& cut = scratch_.cut;
    if (!cut_product(plan, cut)) return CompileStatus::does_not_fit;
    const auto vector_stage = [&](NormalPlan& part) {
      halve(part);
      return stage(part, peak_live_bytes(part, target_), {});
    };
    if (cut.has_prologue && !vector_stage(cut.prologue)) return CompileStatus::does_not_fit;
    const size_t stages = out_.stages.size();
    const uint32_t programs = out_.program_count;
    if (pair_stage(plan)) return CompileStatus::ok;
    out_.stages.resize(stages);
    out_.program_count = programs;
    if (!product_stage(cut.product) || !vector_stage(cut.epilogue))
      return CompileStatus::does_not_fit;
    out_.workspace_bytes = std::max(out_.workspace_bytes, cut.workspace_bytes);
    return CompileStatus::ok;
  }

  // The product of a plan that was cut, and what follows it, side by side. Leaves the epilogue as
  // it found it where it fails.
  bool pair_stage(const NormalPlan& plan) {
    CutProduct& cut = scratch_.cut;
    ProductPlan product = describe_product(cut.product, target_);
    if (product.a < 0 || lanes_of(target_) == 0 || !cut_epilogue(plan, scratch_.pair)) return false;
    product.problem.to_ring = true;
    product.ring_first = cut.prologue_bytes;
    product.ring_slots = ring_slots_of(target_) * target_.cube_cores;
    TileCode& code = scratch_.code;
    code.clear();
    ProductBlock block;
    out_.add_stage();
    ProgramHeader header;
    const auto half = [&](KernelKind kind) {
      if (!enter_ring(target_, product.ring_first, block, code, header) || !fits(kind))
        return false;
      synchronise_ring(code, header, scratch_.sync);
      done("synchronise_ring");
      encode(code, target_, header, scratch_.body, out_.add_program());
      return true;
    };
    if (!lower_product(cut.product, product, target_, code, block)) return false;
    set_regions(product.problem, block, header);
    if (!half(KernelKind::cube)) return false;
    NormalPlan& epilogue = scratch_.pair.epilogue;
    halve(epilogue);
    const double live = peak_live_bytes(epilogue, target_).local;
    const double room = static_cast<double>(target_.vector_tile_bytes / target_.places);
    const int64_t units = block.rows_outer ? block.columns / target_.matmul_nr : block.rows;
    const auto volume = static_cast<double>(block.rows * block.columns);
    for (int64_t pieces = 1; pieces <= units; ++pieces) {
      if (units % pieces != 0 || volume * live > room * static_cast<double>(pieces)) continue;
      code.clear();
      header = {};
      if (!tile_pieces(epilogue, product.ring_first, block, pieces, code, header)) return false;
      Lowering(epilogue, target_, code, scratch_.lowering, 0).lower_all();
      if (!half(KernelKind::vector)) continue;
      out_.workspace_bytes = std::max(out_.workspace_bytes,
                                      product.ring_first + product.ring_slots * slot_bytes(block));
      return true;
    }
    return false;
  }

  // How the cores share the blocks of a product whose program has just been lowered.
  void set_regions(const ProductProblem& problem, const ProductBlock& block,
                   ProgramHeader& header) const {
    const TileCode& code = scratch_.code;
    if (problem.batch > 1 || code.chunk_dim != 2) return;
    header.regions[0] = static_cast<uint16_t>(block.regions.outer);
    header.regions[1] = static_cast<uint16_t>(block.regions.inner);
  }

  bool product_stage(const NormalPlan& plan) {
    const ProductPlan product = describe_product(plan, target_);
    if (product.a < 0) return false;
    TileCode& code = scratch_.code;
    code.clear();
    ProductBlock block;
    if (!lower_product(plan, product, target_, code, block)) return false;
    ProgramHeader header;
    set_regions(product.problem, block, header);
    if (!fits(KernelKind::cube)) return false;
    out_.add_stage();
    encode(code, target_, header, scratch_.body, out_.add_program());
    return true;
  }

  // A program of the stage at hand.
  bool cube_program(const CubeProblem& problem) {
    double shrink = 1;
    for (int attempt = 0; attempt < kAttempts; ++attempt, shrink /= 2) {
      scratch_.code.clear();
      if (!lower_cube(problem, shrink, scratch_.code, scratch_.lowering)) continue;
      if (fits(problem.plan().kind)) {
        encode(scratch_.code, target_, scratch_.body, out_.add_program());
        out_.one_memory |= target_.has_cube_memories();
        return true;
      }
    }
    return false;
  }

  bool split_kernel(const LiveBytes& live) {
    const SplitReduction& split = scratch_.split;
    if (!stage(split.partial, live, split.piece)) return false;
    if (!stage(split.join, peak_live_bytes(split.join, target_), {})) return false;
    out_.workspace_bytes = split.workspace_bytes;
    return true;
  }

  bool stage(const NormalPlan& plan, const LiveBytes& live, ForcedTile forced) {
    TilingRequest request{live, 1, forced};
    if (target_.joins && forced.axis < 0 && passes_by_rows(plan, target_)) {
      request.by_rows = true;
      scratch_.code.clear();
      if (tile_whole(plan, target_, request, scratch_.code) && lower(plan, 0, true)) return true;
      request.by_rows = false;
    }
    for (int attempt = 0; attempt < kAttempts; ++attempt, request.shrink /= 2) {
      scratch_.code.clear();
      if (!tile_whole(plan, target_, request, scratch_.code)) break;
      if (lower(plan, 0)) return true;
      if (scratch_.code.local_bytes <= target_.local_bytes) break;  // not a matter of memory
    }
    if (forced.axis >= 0) return false;
    request.shrink = 1;
    for (int attempt = 0; attempt < kAttempts; ++attempt, request.shrink /= 2) {
      scratch_.code.clear();
      const uint32_t chunk_axes = tile_chunks(plan, target_, request, scratch_.code);
      if (chunk_axes != 0 && lower(plan, chunk_axes)) return true;
    }
    return false;
  }

  bool lower(const NormalPlan& plan, uint32_t chunk_axes, bool by_rows = false) {
    TileCode& code = scratch_.code;
    if (code.overflow) return false;
    Lowering(plan, target_, code, scratch_.lowering, chunk_axes).lower_all();
    if (!fits(KernelKind::vector, by_rows)) return false;
    out_.add_stage();
    encode(code, target_, scratch_.body, out_.add_program());
    return true;
  }

  // Joins, allocates and synchronises the tile code. False: it does not fit local memory, or was
  // tiled to run by rows and does not.
  bool fits(KernelKind kind, bool by_rows = false) {
    TileCode& code = scratch_.code;
    if (code.overflow) return false;
    code.kind = kind;
    code.release_buffers();
    done("lower");
    if (target_.joins) {
      if (may_join(code)) join();
      const bool by_row_blocks = mark_row_blocks(code, target_, scratch_.rows);
      done("mark_row_blocks");
      if (by_rows && !by_row_blocks) return false;
      if (target_.fetches) {
        fetch_ahead(code, target_);
        done("fetch_ahead");
      }
    }
    allocate();
    done("allocate");
    if (code.overflow || code.local_bytes > target_.memory_end()) return false;
    if (!target_.in_order()) {
      synchronise(code, target_, scratch_.sync);
      if (code.overflow) return false;
      done("synchronise");
    }
    if (target_.fetches && kind != KernelKind::vector) {
      prefetch_under_products(code, target_);
      done("prefetch_under_products");
    }
    if (kind == KernelKind::vector) code.preferred_claim = claim_of(code);
    return true;
  }

  void join() {
    TileCode& code = scratch_.code;
    repeat_cheap(code);
    done("repeat_cheap");
    move_loads(code, target_);
    done("move_loads");
    join_strips(code, target_, scratch_.join);
    done("join_strips");
  }

  void done(const char* step) {
    if (scratch_.observer) scratch_.observer(step, scratch_.code);
  }

  void allocate() {
    TileCode& code = scratch_.code;
    if (target_.places > 1 && !target_.unified_memory) {
      scratch_.buffers = code.buffers;
      separate_loads(code);
      allocate_local(code, target_, scratch_.allocator);
      if (code.local_bytes <= target_.memory_end()) return;
      code.buffers = scratch_.buffers;
    }
    allocate_local(code, target_, scratch_.allocator);
  }

  // Tiles that a core takes at a time. What is loaded once per claim should cost little next to the
  // claim's tiles; otherwise small claims are better, for cores that are late or slow.
  int64_t claim_of(const TileCode& code) const {
    double once = 0, each = 0;
    for (const TileInstruction& instruction : code.instructions) {
      (instruction.changed_mask != 0 ? once : each) += work_of(instruction, code);
    }
    if (once == 0) return 1;
    int64_t tiles = 1;
    for (const GridDim& dim : code.grid) tiles *= dim.count;
    const int64_t claims = int64_t{kLeastClaimsPerCore} * target_.cores;
    const auto most = static_cast<double>((tiles + claims - 1) / claims);
    return static_cast<int64_t>(std::min(most, 1 + once * kClaimPerOnce / std::max(each, 1.0)));
  }

  // In vector elements, for a full tile.
  double work_of(const TileInstruction& instruction, const TileCode& code) const {
    double elements = 1;
    for (const uint8_t e : instruction.extents) {
      if (e == 0) continue;
      const ExtentRegister& extent = code.extents[e - 1];
      elements *= static_cast<double>(extent.dim < 0 ? extent.multiplier
                                                     : extent.value(code.grid[extent.dim].tile));
    }
    return elements + target_.costs.in_vector_elements(target_.costs.tile_start);
  }

  const Target& target_;
  CompilerScratch::State& scratch_;
  CompiledKernel& out_;
};

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
                             Apart apart) {
  fetch(plan, out);
  out.clear();
  CompilerScratch::State& state = scratch.state();
  if (!normalise(plan, dims, values, state.plan)) return CompileStatus::empty;
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
  if (status == CompileStatus::does_not_fit && apart != Apart::never) {
    status = compilation.apart();
  }
  if (status != CompileStatus::ok) out.clear();
  return status;
}

}  // namespace dvm
