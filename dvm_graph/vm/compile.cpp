#include "vm/compile.h"

#include <algorithm>
#include <cmath>

#include "kernels/normalise.h"
#include "vm/allocate.h"
#include "vm/apart.h"
#include "vm/bytes.h"
#include "vm/cube.h"
#include "vm/cut_product.h"
#include "vm/encode.h"
#include "vm/finish_windows.h"
#include "vm/halves.h"
#include "vm/lower.h"
#include "vm/move_loads.h"
#include "vm/packed_product.h"
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

// Tiles of what computes rows of A.
struct RowCut {
  uint8_t lanes;
  int64_t rows, depth;  // of a tile
  double seconds;       // of a slot
};

struct CompilerScratch::State {
  NormalPlan plan;
  SplitReduction split;
  SplitProduct product;
  PackedProduct packed;
  CutProduct cut;
  CutChain chain;
  NormalPlan scaled;              // of products whose rows are scaled before
  NormalPlan prologue, epilogue;  // of a pair
  std::vector<RowCut> cuts;
  ApartPlans apart;
  TileCode code;
  LoweringScratch lowering;
  BytesScratch bytes;
  HalvesScratch halves;
  FinishScratch finish;
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
constexpr int64_t kTilesOfLane = 2;     // of rows, in a slot, at least
constexpr int64_t kLeastTiles[] = {4096, 64, 1};  // elements of tiles, where nothing else fits

class Compilation {
 public:
  Compilation(const Target& target, CompilerScratch::State& scratch, CompiledKernel& out)
      : target_(target), scratch_(scratch), out_(out) {}

  CompileStatus vector_kernel(bool has_fallback) {
    choose_registers(scratch_.plan);
    const NormalPlan& plan = scratch_.plan;
    const LiveBytes live = peak_live_bytes(plan, target_);
    if (has_fallback && prefers_fallback(live)) return CompileStatus::costs_more;
    if (split_reduction(plan, target_, live, scratch_.split)) {
      if (split_kernel(live)) return CompileStatus::ok;
      out_.clear();
    }
    if (!stage(plan, live, {})) return CompileStatus::does_not_fit;
    // Where memory ran short, tiles became narrower than predicted.
    const bool narrow = has_fallback && goes_across(plan, target_, scratch_.code);
    return narrow ? CompileStatus::costs_more : CompileStatus::ok;
  }

  CompileStatus cube_kernel() {
    if (target_.has_cube_memories()) {
      const bool scaled = scale_rows_before(scratch_.plan, scratch_.scaled);
      const CompileStatus status = product_kernel(scaled ? scratch_.scaled : scratch_.plan, 0);
      if (status != CompileStatus::does_not_fit) return status;
      out_.clear();
    }
    const CubeProblem problem(scratch_.plan, target_);
    const bool unlike = !problem.possible() && problem.beside().size() > 1;  // matrices B
    if (scratch_.plan.weighed && (unlike || problem.costs_more())) return CompileStatus::costs_more;
    if (split_product(problem, scratch_.product)) {
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
    if (scratch_.plan.kind == KernelKind::vector) choose_registers(scratch_.plan);
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
    TilingRequest request{.live = live};
    request.widens = false;
    return tile_whole(plan, target_, request, scratch_.code) &&
           goes_across(plan, target_, scratch_.code);
  }

  bool alone(NormalPlan& plan) {
    if (plan.kind != KernelKind::vector) return product_alone(plan);
    choose_registers(plan);
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
    choose_registers(split.join);
    out_.add_stage();
    if (!cube_program({split.partial, target_})) return false;
    if (split.has_rest && !cube_program({split.rest, target_})) return false;
    if (!stage(split.join, peak_live_bytes(split.join, target_), {})) return false;
    out_.workspace_bytes = std::max(out_.workspace_bytes, split.workspace_bytes);
    return true;
  }

  // B is packed first.
  bool packed_cube_kernel(const CubeProblem& problem) {
    const auto packed = pack_product(problem, scratch_.packed);
    if (!packed) return false;
    scratch_.code.clear();
    lower_packing(scratch_.packed, problem, scratch_.code);
    const Mark nothing = mark();
    if (fits(KernelKind::vector)) {
      out_.add_stage();
      encode(scratch_.code, target_, scratch_.body, out_.add_program());
      out_.add_stage();
      out_.workspace_bytes = scratch_.packed.workspace_bytes;
      if (cube_program(*packed)) return true;
    }
    out_.workspace_bytes = 0;
    back_to(nothing);
    return false;
  }

  void choose_registers(NormalPlan& plan) {
    compute_halves(plan, target_, scratch_.halves);
    keep_bytes(plan, scratch_.bytes);
  }

  bool vector_stage(NormalPlan& part) {
    choose_registers(part);
    return stage(part, peak_live_bytes(part, target_), {});
  }

  struct Mark {
    size_t stages;
    uint32_t programs;
  };
  Mark mark() const { return {out_.stages.size(), out_.program_count}; }
  void back_to(const Mark& mark) {
    out_.stages.resize(mark.stages);
    out_.program_count = mark.programs;
  }

  // What the cube unit does of a product that was cut.
  struct CubeHalf {
    ProductPlan product;
    const NormalPlan* plan = nullptr;  // of it
    bool whole = false;                // nothing is left behind it
    bool paired = false;               // a vector half takes over its sums
  };

  // On a cube unit with memories of its own: in a program, else beside vector programs, else
  // between stages of those. The workspace is taken up to its byte number `used`.
  CompileStatus product_kernel(const NormalPlan& plan, int64_t used) {
    if (product_stage(plan)) return CompileStatus::ok;
    if (plan.inner_k_axis >= 0) return chained_kernel(plan);
    CutProduct& cut = scratch_.cut;
    const CompileStatus otherwise =
        plan.weighed ? CompileStatus::costs_more : CompileStatus::does_not_fit;
    if (!cut_product(plan, used, cut)) return otherwise;
    CubeHalf half = describe_half(plan);
    if (half.product.a < 0) return otherwise;
    const Mark nothing = mark();
    if (cut.has_prologue && fed_pair(plan, half, used)) return CompileStatus::ok;
    back_to(nothing);
    if (plan.weighed) return otherwise;  // its fallback keeps rows in memory
    if (cut.has_prologue && !vector_stage(cut.prologue)) return CompileStatus::does_not_fit;
    out_.workspace_bytes = std::max(out_.workspace_bytes, cut.prologue_bytes);
    if (half.whole) return product_stage(cut.rest) ? CompileStatus::ok : otherwise;
    const Mark prologue = mark();
    const ProductProblem& problem = half.product.problem;
    if (half.paired && pair_stage(half, choose_product_block(problem, target_), cut.prologue_bytes))
      return CompileStatus::ok;
    back_to(prologue);
    if (!product_stage(cut.product) || !vector_stage(cut.epilogue)) return otherwise;
    out_.workspace_bytes = std::max(out_.workspace_bytes, cut.workspace_bytes);
    return CompileStatus::ok;
  }

  // A product of a product: the inner one, then the other beside what its A is computed from.
  CompileStatus chained_kernel(const NormalPlan& plan) {
    CutChain& chain = scratch_.chain;
    const CompileStatus otherwise =
        plan.weighed ? CompileStatus::costs_more : CompileStatus::does_not_fit;
    if (!cut_chain(plan, chain)) return otherwise;
    out_.workspace_bytes = chain.workspace_bytes;
    const CompileStatus inner = product_kernel(chain.inner, chain.workspace_bytes);
    return inner == CompileStatus::ok ? product_kernel(chain.rest, chain.workspace_bytes)
                                      : otherwise;
  }

  CubeHalf describe_half(const NormalPlan& plan) {
    const CutProduct& cut = scratch_.cut;
    CubeHalf half;
    if (cut.has_prologue) half = {describe_product(cut.rest, target_), &cut.rest, true};
    if (half.product.a >= 0) return half;
    half = {describe_product(cut.product, target_), &cut.product};
    half.paired = lanes_of(target_) > 0 && paired_epilogue(plan, scratch_.epilogue);
    if (half.paired) choose_registers(scratch_.epilogue);
    half.product.problem.to_ring = half.paired;
    if (half.paired) half.product.problem.piece_elements = piece_elements();
    return half;
  }

  // The product beside what computes A, where that is predicted to take less than one after the
  // other.
  bool fed_pair(const NormalPlan& plan, CubeHalf half, int64_t used) {
    NormalPlan& prologue = scratch_.prologue;
    const auto lanes = static_cast<double>(lanes_of(target_));
    const double at_rows = half.paired ? std::floor(lanes / 2) : lanes;
    if (at_rows == 0 || !(half.whole || half.paired) ||
        !paired_prologue(plan, half.product.multiplied, prologue))
      return false;
    choose_registers(prologue);
    const LaneCost row = lane_cost(prologue, prologue.nodes.back().axes, target_);
    ProductProblem& problem = half.product.problem;
    const double rows = static_cast<double>(problem.a_batch * problem.m * problem.k);
    const double stored = problem.left_bytes / target_.costs.memory_write;
    // In a stage of its own, whose first tile waits for what it loads and whose last one for what
    // it stores.
    const double share = rows / static_cast<double>(target_.cores);
    const double tile = lane_room() / std::max(1.0, peak_live_bytes(prologue, target_).local);
    const double product =
        std::max(choose_product_block(problem, target_).seconds, behind(half, lanes));
    const double apart = product + share * std::max(row.seconds, stored) +
                         std::min(share, tile) * (row.alone - row.seconds) +
                         target_.costs.stage_start;
    problem.from_ring = true;
    problem.row_seconds = row.seconds / at_rows;
    problem.left_bytes = row.memory_bytes;
    const ProductBlock block = choose_product_block(problem, target_);
    return block.rows > 0 && std::max(block.seconds, behind(half, lanes - at_rows)) < apart &&
           pair_stage(half, block, used);
  }

  // Seconds that so many lanes of each cube core need for what follows a product.
  double behind(const CubeHalf& half, double lanes) const {
    if (!half.paired) return 0;
    const NormalPlan& epilogue = scratch_.epilogue;
    const ProductProblem& p = half.product.problem;
    const LaneCost each = lane_cost(epilogue, epilogue.nodes[0].axes, target_);
    return each.seconds * static_cast<double>(p.batch * p.m * p.n) /
           (lanes * static_cast<double>(target_.cube_cores));
  }

  // The product of a plan that was cut beside vector halves. The rings begin at that byte of the
  // workspace.
  bool pair_stage(CubeHalf half, const ProductBlock& block, int64_t used) {
    ProductPlan& product = half.product;
    ProgramHeader header;
    if (block.rows == 0 || !plan_rings(product.problem, block, target_, header)) return false;
    for (const Handed handed : kHanded) {
      const Ring& ring = header.ring(handed);
      (handed == Handed::rows ? product.rows : product.sums) = {
          used, target_.cube_cores * ring.slots, ring.bytes};
      used += target_.cube_cores * ring.slots * ring.bytes;
    }
    out_.add_stage();
    out_.add_program();
    const uint32_t cube = out_.program_count - 1;
    if (product.problem.to_ring && !sums_half(product, block, header)) return false;
    if (product.problem.from_ring && !rows_half(product, block, header)) return false;
    scratch_.code.clear();
    if (!lower_product(*half.plan, product, block, target_, scratch_.code)) return false;
    set_regions(product.problem, block, header);
    if (!synchronised(KernelKind::cube, product, header)) return false;
    encode(scratch_.code, target_, header, scratch_.body, out_.programs[cube]);
    out_.workspace_bytes = std::max(out_.workspace_bytes, used);
    return true;
  }

  bool synchronised(KernelKind kind, const ProductPlan& product, ProgramHeader& header) {
    TileCode& code = scratch_.code;
    for (const Handed handed : kHanded) {
      const RingPlace& place = handed == Handed::rows ? product.rows : product.sums;
      if (header.ring(handed).lanes > 0 && !enter_ring(target_, handed, place.first, code, header))
        return false;
    }
    if (!fits(kind)) return false;
    synchronise_rings(code, header, scratch_.sync);
    done("synchronise_rings");
    return true;
  }

  // A program that lanes run, whose tiles are chosen.
  bool lane_program(const NormalPlan& plan, const ProductPlan& product, ProgramHeader& header) {
    TileCode& code = scratch_.code;
    Lowering(plan, target_, code, scratch_.lowering, 0).lower_all();
    if (!synchronised(KernelKind::vector, product, header)) return false;
    encode(code, target_, header, scratch_.body, out_.add_program());
    return true;
  }

  // Of what follows a product, that a lane holds at once.
  double piece_elements() const {
    return lane_room() / std::max(1.0, peak_live_bytes(scratch_.epilogue, target_).local);
  }

  double lane_room() const {
    return static_cast<double>(target_.vector_tile_bytes / target_.places);
  }

  bool sums_half(const ProductPlan& product, const ProductBlock& block, const ProgramHeader& cube) {
    NormalPlan& epilogue = scratch_.epilogue;
    const double most = product.problem.piece_elements;
    for (int64_t pieces = 0; (pieces = pieces_of(block, most, target_, pieces + 1)) > 0;) {
      scratch_.code.clear();
      ProgramHeader header;
      header.ring(Handed::sums) = cube.ring(Handed::sums);
      if (!tile_pieces(epilogue, product.sums.first, block, pieces, scratch_.code, header))
        return false;
      if (lane_program(epilogue, product, header)) return true;
    }
    return false;
  }

  // Whole rows, several of them for each lane; parts of one, where it does not fit and may be cut.
  // The last line may have too few for all lanes: then one lane does it, or all with shorter tiles.
  bool rows_half(const ProductPlan& product, const ProductBlock& block, ProgramHeader& cube) {
    NormalPlan& prologue = scratch_.prologue;
    Ring& ring = cube.ring(Handed::rows);
    list_cuts(product.problem, block, ring.lanes);
    for (const RowCut& cut : scratch_.cuts) {
      ring.lanes = cut.lanes;
      scratch_.code.clear();
      ProgramHeader header;
      header.ring(Handed::rows) = ring;
      header.line_blocks = cube.line_blocks;
      if (tile_rows(prologue, product.rows.first, product.problem, block, target_, cut.rows,
                    cut.depth, scratch_.code, header) &&
          lane_program(prologue, product, header))
        return true;
    }
    return false;
  }

  // How the rows of a block may be cut, what is predicted to take least first: a lane's share of
  // the work, and the starts of its tiles.
  void list_cuts(const ProductProblem& problem, const ProductBlock& block, uint8_t most_lanes) {
    const NormalPlan& prologue = scratch_.prologue;
    const bool whole = prologue.reduced_axes() != 0;
    const int64_t k = problem.k, unit = target_.vector_bytes / int64_t{sizeof(float)};
    const double row = static_cast<double>(k) * peak_live_bytes(prologue, target_).local;
    const double work = static_cast<double>(block.rows * k * most_lanes) * problem.row_seconds;
    const double start = static_cast<double>(prologue.nodes.size()) * target_.costs.block_start;
    std::vector<RowCut>& cuts = scratch_.cuts;
    cuts.clear();
    for (uint8_t lanes = most_lanes; lanes > 0; lanes /= 2) {
      for (int64_t each = kTilesOfLane * lanes; each <= block.rows; ++each) {
        if (block.rows % each != 0) continue;
        const int64_t rows = block.rows / each;
        const auto parts =
            static_cast<int64_t>(std::ceil(row * static_cast<double>(rows) / lane_room()));
        if (parts > 1 && (rows > 1 || (whole && parts > target_.places))) continue;
        const int64_t depth = whole || parts <= 1 ? k : ceil_div(ceil_div(k, parts), unit) * unit;
        const auto tiles = static_cast<double>(ceil_div(each * ceil_div(k, depth), lanes));
        cuts.push_back({lanes, rows, depth, work / lanes + tiles * start});
      }
    }
    std::ranges::stable_sort(cuts, {}, &RowCut::seconds);
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
    const ProductBlock block = choose_product_block(product.problem, target_);
    if (block.rows == 0) return false;
    TileCode& code = scratch_.code;
    code.clear();
    if (!lower_product(plan, product, block, target_, code)) return false;
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
      const auto chunk_axes = tile_chunks(plan, target_, request, scratch_.code);
      if (chunk_axes && lower(plan, *chunk_axes)) return true;
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
    finish_windows(code, target_, scratch_.finish);
    done("finish_windows");
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
