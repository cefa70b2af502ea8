#include "vm/product_kernel.h"

#include <algorithm>
#include <cmath>

#include "vm/pair.h"

namespace dvm {
namespace {

constexpr int64_t kTilesOfLane = 2;  // of rows, in a slot, at least

}  // namespace

CompileStatus ProductKernel::compile(const NormalPlan& plan) {
  const bool scaled = scale_rows_before(plan, scratch_.scaled);
  return compile(scaled ? scratch_.scaled : plan, 0);
}

// The workspace is taken up to its byte number `used`.
CompileStatus ProductKernel::compile(const NormalPlan& plan, int64_t used) {
  if (one_stage(plan)) return CompileStatus::ok;
  if (plan.inner_k_axis >= 0) return compile_chain(plan);
  CutProduct& cut = scratch_.cut;
  const CompileStatus otherwise =
      plan.weighed ? CompileStatus::costs_more : CompileStatus::does_not_fit;
  if (!cut_product(plan, used, cut)) return otherwise;
  CubeHalf half = describe_half(plan);
  if (half.product.a < 0) return otherwise;
  const StageWriter::Mark nothing = stages_.mark();
  if (cut.has_prologue && fed_pair(plan, half, used)) return CompileStatus::ok;
  stages_.back_to(nothing);
  if (plan.weighed) return otherwise;  // its fallback keeps rows in memory
  if (cut.has_prologue && !stages_.vector_stage(cut.prologue)) return CompileStatus::does_not_fit;
  stages_.need_workspace(cut.prologue_bytes);
  if (half.whole) return one_stage(cut.rest) ? CompileStatus::ok : otherwise;
  const StageWriter::Mark prologue = stages_.mark();
  const ProductProblem& problem = half.product.problem;
  if (half.paired && pair_stage(half, choose_product_block(problem, target_), cut.prologue_bytes))
    return CompileStatus::ok;
  stages_.back_to(prologue);
  if (!one_stage(cut.product) || !stages_.vector_stage(cut.epilogue)) return otherwise;
  stages_.need_workspace(cut.workspace_bytes);
  return CompileStatus::ok;
}

// A product of a product: the inner one, then the other beside what its A is computed from.
CompileStatus ProductKernel::compile_chain(const NormalPlan& plan) {
  CutChain& chain = scratch_.chain;
  const CompileStatus otherwise =
      plan.weighed ? CompileStatus::costs_more : CompileStatus::does_not_fit;
  if (!cut_chain(plan, chain)) return otherwise;
  stages_.need_workspace(chain.workspace_bytes);
  const CompileStatus inner = compile(chain.inner, chain.workspace_bytes);
  return inner == CompileStatus::ok ? compile(chain.rest, chain.workspace_bytes) : otherwise;
}

bool ProductKernel::one_stage(const NormalPlan& plan) {
  const ProductPlan product = describe_product(plan, target_);
  if (product.a < 0) return false;
  const ProductBlock block = choose_product_block(product.problem, target_);
  if (block.rows == 0) return false;
  TileCode& code = stages_.code();
  code.clear();
  if (!lower_product(plan, product, block, target_, code)) return false;
  ProgramHeader header;
  set_regions(product.problem, block, header);
  if (!stages_.take_steps(KernelKind::cube)) return false;
  stages_.out().add_stage();
  stages_.add_program(header);
  return true;
}

// How the cores share the blocks of a product whose program has just been lowered.
void ProductKernel::set_regions(const ProductProblem& problem, const ProductBlock& block,
                                ProgramHeader& header) const {
  const TileCode& code = stages_.code();
  if (problem.batch > 1 || code.chunk_dim != 2) return;
  header.regions[0] = static_cast<uint16_t>(block.regions.outer);
  header.regions[1] = static_cast<uint16_t>(block.regions.inner);
}

// ---- pairs

ProductKernel::CubeHalf ProductKernel::describe_half(const NormalPlan& plan) {
  const CutProduct& cut = scratch_.cut;
  CubeHalf half;
  if (cut.has_prologue) half = {describe_product(cut.rest, target_), &cut.rest, true};
  if (half.product.a >= 0) return half;
  half = {describe_product(cut.product, target_), &cut.product};
  half.paired = lanes_of(target_) > 0 && paired_epilogue(plan, scratch_.epilogue);
  if (half.paired) stages_.choose_registers(scratch_.epilogue);
  half.product.problem.to_ring = half.paired;
  if (half.paired) half.product.problem.piece_elements = piece_elements();
  return half;
}

// The product beside what computes A, where that is predicted to take less than one after the
// other.
bool ProductKernel::fed_pair(const NormalPlan& plan, CubeHalf half, int64_t used) {
  NormalPlan& prologue = scratch_.prologue;
  const auto lanes = static_cast<double>(lanes_of(target_));
  const double at_rows = half.paired ? std::floor(lanes / 2) : lanes;
  if (at_rows == 0 || !(half.whole || half.paired) ||
      !paired_prologue(plan, half.product.multiplied, prologue))
    return false;
  stages_.choose_registers(prologue);
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
double ProductKernel::behind(const CubeHalf& half, double lanes) const {
  if (!half.paired) return 0;
  const NormalPlan& epilogue = scratch_.epilogue;
  const ProductProblem& p = half.product.problem;
  const LaneCost each = lane_cost(epilogue, epilogue.nodes[0].axes, target_);
  return each.seconds * static_cast<double>(p.batch * p.m * p.n) /
         (lanes * static_cast<double>(target_.cube_cores));
}

// The product of a plan that was cut beside vector halves. The rings begin at that byte of the
// workspace.
bool ProductKernel::pair_stage(CubeHalf half, const ProductBlock& block, int64_t used) {
  ProductPlan& product = half.product;
  ProgramHeader header;
  if (block.rows == 0 || !plan_rings(product.problem, block, target_, header)) return false;
  for (const Handed handed : kHanded) {
    const Ring& ring = header.ring(handed);
    (handed == Handed::rows ? product.rows : product.sums) = {used, target_.cube_cores * ring.slots,
                                                              ring.bytes};
    used += target_.cube_cores * ring.slots * ring.bytes;
  }
  stages_.out().add_stage();
  stages_.out().add_program();
  const uint32_t cube = stages_.out().program_count - 1;
  if (product.problem.to_ring && !sums_half(product, block, header)) return false;
  if (product.problem.from_ring && !rows_half(product, block, header)) return false;
  stages_.code().clear();
  if (!lower_product(*half.plan, product, block, target_, stages_.code())) return false;
  set_regions(product.problem, block, header);
  if (!synchronised(KernelKind::cube, product, header)) return false;
  stages_.write(header, stages_.out().programs[cube]);
  stages_.need_workspace(used);
  return true;
}

bool ProductKernel::synchronised(KernelKind kind, const ProductPlan& product,
                                 ProgramHeader& header) {
  TileCode& code = stages_.code();
  for (const Handed handed : kHanded) {
    const RingPlace& place = handed == Handed::rows ? product.rows : product.sums;
    if (header.ring(handed).lanes > 0 && !enter_ring(target_, handed, place.first, code, header))
      return false;
  }
  if (!stages_.take_steps(kind)) return false;
  synchronise_rings(code, header, stages_.scratch().steps.sync);
  stages_.scratch().steps.done("synchronise_rings", code);
  return true;
}

// A program that lanes run, whose tiles are chosen.
bool ProductKernel::lane_program(const NormalPlan& plan, const ProductPlan& product,
                                 ProgramHeader& header) {
  TileCode& code = stages_.code();
  Lowering(plan, target_, code, stages_.scratch().lowering, 0).lower_all();
  if (!synchronised(KernelKind::vector, product, header)) return false;
  stages_.add_program(header);
  return true;
}

// Of what follows a product, that a lane holds at once.
double ProductKernel::piece_elements() const {
  return lane_room() / std::max(1.0, peak_live_bytes(scratch_.epilogue, target_).local);
}

double ProductKernel::lane_room() const {
  return static_cast<double>(target_.vector_tile_bytes / target_.places);
}

bool ProductKernel::sums_half(const ProductPlan& product, const ProductBlock& block,
                              const ProgramHeader& cube) {
  NormalPlan& epilogue = scratch_.epilogue;
  const double most = product.problem.piece_elements;
  for (int64_t pieces = 0; (pieces = pieces_of(block, most, target_, pieces + 1)) > 0;) {
    stages_.code().clear();
    ProgramHeader header;
    header.ring(Handed::sums) = cube.ring(Handed::sums);
    if (!tile_pieces(epilogue, product.sums.first, block, pieces, stages_.code(), header))
      return false;
    if (lane_program(epilogue, product, header)) return true;
  }
  return false;
}

// Whole rows, several of them for each lane; parts of one, where it does not fit and may be cut.
// The last line may have too few for all lanes: then one lane does it, or all with shorter tiles.
bool ProductKernel::rows_half(const ProductPlan& product, const ProductBlock& block,
                              ProgramHeader& cube) {
  NormalPlan& prologue = scratch_.prologue;
  Ring& ring = cube.ring(Handed::rows);
  list_cuts(product.problem, block, ring.lanes);
  for (const RowCut& cut : scratch_.cuts) {
    ring.lanes = cut.lanes;
    stages_.code().clear();
    ProgramHeader header;
    header.ring(Handed::rows) = ring;
    header.line_blocks = cube.line_blocks;
    if (tile_rows(prologue, product.rows.first, product.problem, block, target_, cut.rows,
                  cut.depth, stages_.code(), header) &&
        lane_program(prologue, product, header))
      return true;
  }
  return false;
}

// How the rows of a block may be cut, what is predicted to take least first: a lane's share of
// the work, and the starts of its tiles.
void ProductKernel::list_cuts(const ProductProblem& problem, const ProductBlock& block,
                              uint8_t most_lanes) {
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

}  // namespace dvm
