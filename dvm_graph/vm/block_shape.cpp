#include "vm/block_shape.h"

#include <algorithm>
#include <cmath>

#include "kernels/numbers.h"
#include "vm/block_cost.h"

namespace dvm {
namespace {

// Limits of the search, and of what a body is unrolled to: no matter of a device.
constexpr int64_t kMostColumnBlocks = 32;   // of the inner product
constexpr int64_t kMostRegisterBlocks = 8;  // rows of a tile with an inner product
constexpr int64_t kRowRegisterBlocks = 8;   // of a tile, where the device prefers no number
constexpr int kRowChoices = 4;
constexpr int64_t kWaveChoices = 4;
constexpr int64_t kLeastPiece = 256;
constexpr int64_t kMostPieces = 4;  // for each core
constexpr double kLeastSaving = 2;  // of a split, in what its second stage costs

int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Goes through shapes, makes them fit into local memory, and keeps the one that costs least.
class Search {
 public:
  Search(const BlockProblem& problem, const Target& target, int64_t local_bytes)
      : p_(problem),
        target_(target),
        model_(problem, target),
        local_bytes_(local_bytes),
        room_(local_bytes / problem.element_bytes),
        steps_(model_.steps()),
        inner_steps_(model_.inner_steps()),
        panels_(model_.panels()),
        register_rows_(std::max<int64_t>(1, target.matmul_mr)) {}

  BlockShape run() {
    if (p_.inner.k > 0) return with_inner();
    const int64_t preferred =
        target_.matmul_rows > 0 ? target_.matmul_rows : kRowRegisterBlocks * register_rows_;
    int64_t blocks = ceil_div(p_.m, preferred);
    if (blocks > 1) consider_rows(p_.m);
    const int64_t even = round_up(blocks, target_.cores);  // rows stay with their cores
    if (p_.panels && !comes_by_doubling(even, blocks)) consider_rows(ceil_div(p_.m, even));
    for (int choice = 0; choice < kRowChoices; ++choice, blocks *= 2) {
      const int64_t rows = ceil_div(p_.m, blocks);
      consider_rows(rows);
      if (rows <= register_rows_) break;
    }
    // Whole rows leave no columns to balance the cores with.
    const int64_t fewest = std::max<int64_t>(1, p_.m / (preferred * target_.cores));
    for (int64_t waves = fewest; p_.whole_rows && waves < fewest + kWaveChoices; ++waves) {
      consider_rows(ceil_div(p_.m, waves * target_.cores));
    }
    // Memory so small that only register blocks fit.
    if (best_.rows == 0) consider_rows(std::min(p_.m, register_rows_));
    if (best_.rows == 0) consider_rows(1);
    return best_;
  }

 private:
  using Rows = BlockModel::Rows;
  using Grid = BlockModel::Grid;

  // Whether the choices that double `blocks` come to `wanted`.
  static bool comes_by_doubling(int64_t wanted, int64_t blocks) {
    for (int choice = 0; choice < kRowChoices; ++choice, blocks *= 2) {
      if (blocks == wanted) return true;
    }
    return false;
  }

  // Small blocks of rows: whole rows of A lie in local memory, the nearer the better.
  BlockShape with_inner() {
    for (int64_t blocks = 1; blocks <= kMostRegisterBlocks; blocks *= 2) {
      consider_rows(ceil_div(p_.m, ceil_div(p_.m, blocks * register_rows_)));
      if (blocks * register_rows_ >= p_.m) break;
    }
    for (int64_t rows = register_rows_ / 2; best_.rows == 0 && rows > 0; rows /= 2) {
      consider_rows(std::min(p_.m, rows));
    }
    return best_;
  }

  void consider_rows(int64_t count) {
    const Rows rows = model_.of_rows(count);
    if (model_.least(rows) >= best_cost_) return;
    if (p_.whole_rows) return consider_grid(model_.grid(rows, panels_));
    int64_t previous = 0;
    for (int64_t wanted = 1;; wanted = wanted < 4 ? wanted + 1 : wanted * 3 / 2) {
      const int64_t blocks = ceil_div(panels_, std::min(wanted, panels_));
      const int64_t width = ceil_div(panels_, blocks);
      if (width != previous && (!p_.equal_panels || width * blocks == panels_)) {
        consider_grid(model_.grid(rows, width));
      }
      previous = width;
      if (wanted >= panels_) return;
    }
  }

  // The side that costs more to bring in stays while the other one passes.
  void consider_grid(const Grid& grid) {
    const bool several = grid.n_blocks > 1;
    consider_order(grid, p_.pack_a, several && (p_.whole_k || (p_.pack_a && !p_.pack_b)));
    if (p_.pack_a || p_.whole_k) return;
    if (several && grid.rows.rows < p_.m && !p_.pack_b) consider_order(grid, false, true);
    if (!grid.rows.share_sets) return;
    consider_order(grid, true, false);
    if (several && !p_.pack_b) consider_order(grid, true, true);
  }

  void consider_order(const Grid& grid, bool pack_a, bool rows_outer) {
    BlockShape shape;
    shape.rows = grid.rows.rows;
    shape.columns = std::min(p_.n, grid.columns);
    shape.pack_a = pack_a;
    shape.pack_b = p_.pack_b;
    shape.rows_outer = rows_outer;
    shape.k_block = grid.rows.k_block;
    shape.keep_a = rows_outer && pack_a && !p_.whole_k;
    if (p_.inner.k > 0) return consider_inner(grid, shape);
    shape.keep_b = p_.pack_b && !shape.rows_outer && grid.rows.m_blocks > 1 &&
                   p_.products * grid.columns * steps_ * p_.element_bytes <= local_bytes_ / 2;
    if (judge(grid, shape) || !shape.keep_a) return;
    shape.keep_a = false;
    judge(grid, shape);
  }

  // Both B stay, or that of the inner product, or none.
  void consider_inner(const Grid& grid, const BlockShape& outer) {
    const bool shared = !outer.rows_outer && grid.rows.m_blocks * p_.batch > p_.b_batch;
    const bool shared_inner = grid.rows.m_blocks * p_.batch > p_.inner.b_batch;
    for (int kept = 2; kept >= 0; --kept) {
      BlockShape shape = outer;
      shape.inner_k_block = k_block_of(inner_steps_, target_.matmul_k_block);
      shape.keep_b = kept == 2 && p_.pack_b && shared;
      shape.keep_inner_b = kept >= 1 && p_.inner.pack_b && shared_inner;
      shape.pack_b = p_.pack_b && (shape.keep_b || !p_.readable_b);
      judge(grid, shape);
    }
  }

  // Makes the shape fit, and keeps it if it is the best so far. False: it is too large. What costs
  // least to know comes first: most shapes end there.
  bool judge(const Grid& grid, BlockShape& shape) {
    BlockCost cost;
    cost.late = model_.terms().late_core;
    cost.tile = model_.tile(grid, shape);
    cost.waves = grid.least_waves;
    if (cost.total() >= best_cost_) return true;
    cost.waves = model_.waves(grid, shape);
    cost.passed = model_.passed(grid, shape);
    if (cost.total() >= best_cost_) return true;
    if (!fit(shape, grid.columns)) return false;
    cost.above = model_.above(grid, shape);
    if (cost.total() >= best_cost_) return true;
    cost.hidden = model_.hidden(grid, shape);
    best_cost_ = cost.total();
    best_ = shape;
    best_.cost = cost.compared();
    return true;
  }

  // Shortens the k block until the operands fit; false where nothing does.
  bool fit(BlockShape& shape, int64_t columns) const {
    const bool block_a = shape.pack_a && !p_.whole_k;
    const int64_t c = p_.local_c ? (p_.products + 1) * shape.rows * shape.columns : 0;
    const int64_t inner_b = shape.keep_inner_b ? model_.padded_inner() * inner_steps_ : 0;
    const int64_t computed = 2 * shape.rows * p_.k + (p_.bundle > 1 ? shape.rows * steps_ : 0);
    const int64_t fixed = c + (p_.whole_k ? computed : 0) +
                          (shape.keep_b ? p_.products * columns * steps_ : 0) + inner_b;
    const int64_t rows = shape.rows * p_.packed_a;
    int64_t per_step = 0;
    if (block_a) per_step += shape.keep_a ? 0 : rows;
    const int64_t kept_a = shape.keep_a ? rows * steps_ : 0;
    const bool passing_b = shape.pack_b && !shape.keep_b;
    if (passing_b) per_step += columns;
    int64_t room = room_ - fixed - kept_a;
    if (room < 0 || (p_.inner.k > 0 && !fit_inner(shape, room))) return false;
    // Other rows of A and C pass through the cache beside panels that stay.
    if (passing_b && !shape.pack_a && room_ / 2 / per_step * kMostKBlocks >= steps_) {
      room = std::min(room, room_ / 2);
    }
    if (per_step * shape.k_block <= room) return true;
    const int64_t most = room / per_step;
    if (most * kMostKBlocks < steps_) return false;
    shape.k_block = ceil_div(steps_, ceil_div(steps_, most));
    return true;
  }

  // Cuts the columns of the inner product until its operands fit.
  bool fit_inner(BlockShape& shape, int64_t room) const {
    shape.inner_columns = model_.padded_inner();
    const bool local_panels = p_.inner.panels && !target_.unified_memory;
    if (p_.inner.whole_k) {
      room -= shape.rows * (2 * p_.inner.k + (p_.bundle > 1 ? inner_steps_ : 0));
    } else if (p_.inner.pack_a) {
      room -= shape.rows * packed_row(shape.inner_k_block, p_.element_bytes, target_);
    }
    if (room < 0) return false;
    if (shape.keep_inner_b || !(p_.inner.pack_b || local_panels)) return true;
    const int64_t panel = shape.inner_k_block * p_.columns_per_panel;
    const int64_t panels = ceil_div(p_.k, p_.columns_per_panel);
    if (local_panels) return panels * p_.columns_per_panel * inner_steps_ <= room;
    const int64_t most = room / panel;
    if (most == 0 || panels > most * kMostColumnBlocks) return false;
    shape.inner_columns = ceil_div(panels, ceil_div(panels, most)) * p_.columns_per_panel;
    return true;
  }

  const BlockProblem& p_;
  const Target& target_;
  const BlockModel model_;
  const int64_t local_bytes_;
  const int64_t room_;                 // elements in local memory
  const int64_t steps_, inner_steps_;  // of k, in elements of A and B
  const int64_t panels_, register_rows_;
  BlockShape best_;
  double best_cost_ = INFINITY;
};

}  // namespace

int64_t packed_row(int64_t depth, int64_t element_bytes, const Target& target) {
  return shares_sets(depth * element_bytes, target) ? depth + target.line_bytes / element_bytes
                                                    : depth;
}

int64_t claimed_run(int64_t runs, int64_t run, bool kept, int64_t cores) {
  constexpr int64_t kKeptClaims = 8, kClaims = 32;  // of a core, so that they still balance
  if (!kept) return std::clamp<int64_t>(runs * run / (kClaims * cores), 1, run);
  const int64_t wanted = kKeptClaims * cores;
  if (runs >= wanted) return run;
  // Half as many claims as wanted: each brings the kept operand in anew.
  return std::min(run, ceil_div(2 * runs * run, wanted));
}

double cost_apart(const BlockProblem& problem, const Target& target) {
  const auto cost_of = [&](const BlockProblem& part) {
    const BlockShape shape = choose_block(part, target, target.local_bytes);
    const double cost = shape.rows > 0 ? shape.cost : INFINITY;
    return part.whole_rows || part.whole_k ? std::min(cost, cost_apart(part, target)) : cost;
  };
  const auto rows = static_cast<double>(problem.batch * problem.m);
  if (problem.products > 1) {
    BlockProblem one = problem;
    one.products = 1;
    one.epilogue_nodes = (problem.epilogue_nodes + problem.products - 1) / problem.products;
    const double passing = rows * static_cast<double>(problem.n * (problem.products - 1));
    return problem.products * cost_of(one) + cost_of_passing(passing, problem, target);
  }
  const bool chained = problem.inner.k > 0;
  if (chained ? problem.inner.whole_k : problem.whole_k) {
    BlockProblem rest = problem;
    (chained ? rest.inner.whole_k : rest.whole_k) = false;
    (chained ? rest.inner.pack_a : rest.pack_a) = problem.bundle > 1;
    Prologue& prologue = chained ? rest.inner.prologue : rest.prologue;
    const double elements = rows * static_cast<double>(chained ? problem.inner.k : problem.k);
    const double work =
        elements * work_of(prologue, CubeTerms(target)) / static_cast<double>(target.cores);
    prologue = {};
    return cost_of(rest) + work + cost_of_passing(elements, problem, target);
  }
  if (!chained) {
    BlockProblem product = problem;
    product.whole_rows = false;
    return cost_of(product) +
           cost_of_passing(rows * static_cast<double>(problem.n), problem, target);
  }
  BlockProblem inner = problem;
  inner.n = problem.k;
  inner.k = problem.inner.k;
  inner.b_batch = problem.inner.b_batch;
  inner.panels = problem.inner.panels;
  inner.pack_a = problem.inner.pack_a;
  inner.pack_b = problem.inner.pack_b;
  inner.whole_rows = problem.prologue_folds;
  inner.epilogue_nodes = problem.prologue.operators;
  inner.prologue = {};
  inner.whole_k = inner.equal_panels = false;
  inner.inner = {};
  BlockProblem outer = problem;
  outer.whole_k = false;
  outer.pack_a = problem.bundle > 1;
  outer.prologue = {};
  outer.inner = {};
  return cost_of(inner) + cost_of(outer) +
         cost_of_passing(rows * static_cast<double>(problem.k), problem, target);
}

int64_t choose_piece(const BlockProblem& problem, const Target& target, double whole) {
  if (problem.inner.k > 0 || problem.whole_k || problem.k < 2 * kLeastPiece) return 0;
  const int64_t blocks = ceil_div(problem.m, std::max<int64_t>(1, target.matmul_mr));
  const int64_t panels = problem.whole_rows ? 1 : ceil_div(problem.n, problem.columns_per_panel);
  const int64_t tiles = problem.batch * blocks * panels;
  if (tiles >= target.cores) return 0;
  const CubeTerms terms(target);
  // What idle cores could save at most of what the product takes at least, with B in the caches.
  const int64_t columns = problem.columns_b ? problem.n : panels * problem.columns_per_panel;
  const double work = static_cast<double>(problem.batch * columns * problem.k) *
                      (static_cast<double>(problem.m) + terms.far);
  const double idle = 1 - static_cast<double>(tiles) / static_cast<double>(target.cores);
  if (work * idle < kLeastSaving * terms.stage_start) return 0;
  double least = whole;
  BlockProblem partial = problem;
  partial.whole_rows = partial.local_c = false;
  partial.epilogue_nodes = 0;
  int64_t best = 0, previous = problem.k;
  for (int64_t wanted = target.cores; wanted <= kMostPieces * target.cores; wanted *= 2) {
    const int64_t even = round_up(ceil_div(problem.k, ceil_div(wanted, tiles)), kPieceStep);
    const int64_t depth = std::max(even, kLeastPiece);
    if (depth >= previous) break;
    previous = depth;
    const int64_t pieces = ceil_div(problem.k, depth);
    partial.k = depth;
    partial.batch = problem.batch * pieces;
    partial.b_batch = problem.b_batch * pieces;
    const BlockShape shape = choose_block(partial, target, target.local_bytes);
    if (shape.rows == 0) continue;
    const auto passed = static_cast<double>(partial.batch * problem.m * problem.n);
    const double cost = shape.cost + cost_of_passing(passed, problem, target);
    if (cost >= least) continue;
    least = cost;
    best = depth;
  }
  return best;
}

BlockShape choose_block(const BlockProblem& problem, const Target& target, int64_t local_bytes) {
  return Search(problem, target, local_bytes).run();
}

}  // namespace dvm
