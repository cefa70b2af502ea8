#include "vm/block_cost.h"

#include <algorithm>
#include <numeric>

#include "kernels/numbers.h"

namespace dvm {
namespace {

int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace

CubeTerms::CubeTerms(const Target& target) {
  const Costs& costs = target.costs;
  passing = costs.per_element(costs.private_read);
  near = costs.beside_products * passing;
  far = costs.per_element(costs.shared_read);
  read_far = costs.per_element(costs.memory_read);
  write_far = costs.per_element(costs.memory_write);
  stream_far = costs.per_element(costs.memory_stream);
  read_near = near;
  write_near = costs.beside_products * costs.per_element(costs.private_write);
  from_rows = costs.runs_apart * read_far;
  passed = costs.per_element(costs.core_transfer);
  first_panel = costs.unannounced * far;
  first_of_row = costs.in_multiply_adds(costs.memory_latency) / costs.in_flight;
  first_of_packed_row = costs.in_multiply_adds(costs.memory_latency) / costs.in_flight_packing;
  pack = costs.multiply_adds / costs.pack_elements;
  pack_rows = pack + passing;
  vector_operation = costs.multiply_adds / costs.epilogue_elements;
  far_window = costs.windows_apart * far;
  block_start = costs.in_multiply_adds(costs.block_start);
  run_start = costs.in_multiply_adds(costs.run_start);
  tile_start = costs.in_multiply_adds(costs.tile_start);
  stage_start = costs.in_multiply_adds(costs.stage_start);
  row_block = costs.per_element(costs.direct_read);
  set_conflict = costs.set_conflict;
  late_core = target.cores > 1 ? costs.late_core : 0;
  pass_start = costs.in_multiply_adds(costs.pass_start);
  least_rows = costs.least_rows;
  room_in_set = static_cast<int>(target.ways / 2);  // lines of B pass through the other half
}

double work_of(const Prologue& prologue, const CubeTerms& terms) {
  return terms.vector_operation * prologue.operators + static_cast<double>(prologue.taps);
}

double cost_of_passing(double elements, const BlockProblem& problem, const Target& target) {
  const CubeTerms terms(target);
  const double bytes = elements * static_cast<double>(problem.element_bytes);
  const auto cores = static_cast<double>(target.cores);
  const bool near = bytes <= static_cast<double>(target.local_bytes) * cores;
  const bool streams = target.streams(static_cast<int64_t>(bytes));
  const double write = near ? terms.write_near : streams ? terms.stream_far : terms.write_far;
  const double read = near ? terms.read_near : terms.read_far;
  return elements * (write + read) / cores + terms.stage_start;
}

int64_t k_block_of(int64_t k, int64_t depth) {
  if (depth <= 0) return k;
  return ceil_div(k, std::min(ceil_div(k, depth), kMostKBlocks));
}

BlockModel::BlockModel(const BlockProblem& problem, const Target& target)
    : p_(problem),
      target_(target),
      t_(target),
      steps_(ceil_div(problem.k, problem.bundle)),
      inner_steps_(ceil_div(problem.inner.k, problem.bundle)),
      sharing_(problem.batch / problem.b_batch),
      panels_(ceil_div(problem.n, problem.columns_per_panel)),
      register_rows_(std::max<int64_t>(1, target.matmul_mr)),
      products_(problem.products),
      panel_share_(problem.panels ? problem.panel_bytes / static_cast<double>(problem.element_bytes)
                                  : 1),
      first_packed_(products_ * static_cast<double>(steps_) * first_of_row(true)),
      first_(products_ * static_cast<double>(steps_) * first_of_row(false)),
      passed_(t_.passed * static_cast<double>(problem.batch * problem.m) /
              static_cast<double>(target.cores) *
              (passed_share(problem.k) * static_cast<double>(problem.k) +
               passed_share(problem.n) * static_cast<double>(problem.n) /
                   static_cast<double>(target.cores))),
      passed_by_columns_(passed_by(problem.batch)) {}

BlockModel::Rows BlockModel::of_rows(int64_t rows) const {
  Rows r;
  r.rows = rows;
  r.m_blocks = ceil_div(p_.m, rows);
  const bool near_a = rows * steps_ * p_.element_bytes <= target_.local_bytes / 2;
  // Panels that are packed share the cache.
  r.k_block = p_.pack_b ? k_block_of(steps_, target_.matmul_k_block * 3 / 4)
              : near_a  ? steps_
                        : k_block_of(steps_, target_.matmul_k_block);
  r.share_sets = rows > t_.room_in_set && p_.rows_per_set > t_.room_in_set;
  r.near = rows * p_.k * p_.element_bytes <= target_.local_bytes / 2;
  r.count = static_cast<double>(rows);
  const auto k = static_cast<double>(steps_);
  const bool passes = p_.pack_b && !p_.whole_k;
  r.a = r.count * k * (passes ? t_.passing : t_.far);
  r.prologue = prologue(p_.prologue, rows, p_.k);
  r.passed = passed_by(p_.batch * r.m_blocks);
  r.k_block_of_column = products_ * static_cast<double>(ceil_div(rows, register_rows_)) *
                        t_.block_start / p_.columns_per_panel;
  if (p_.counts_passes) r.passes = r.count * t_.pass_start * p_.epilogue_nodes;
  r.multiply = products_ * r.count * k;
  if (splits()) {
    const auto whole = static_cast<double>(round_up(rows, target_.splitting.rows));
    r.split = products_ * k * (target_.splitting.multiply * whole + target_.splitting.b);
    r.split_a = products_ * r.count * k * target_.splitting.a;
  }
  const bool in_place = r.split == 0 || r.split >= r.multiply;
  if (r.share_sets && in_place) r.in_sets = r.multiply * t_.set_conflict * p_.rows_per_set;
  r.column = r.multiply + r.count * t_.vector_operation * (products_ + p_.epilogue_nodes) +
             products_ * k * traffic_of_b(rows) * panel_share_ + r.k_block_of_column;
  return r;
}

BlockModel::Grid BlockModel::grid(const Rows& rows, int64_t width) const {
  Grid grid;
  grid.rows = rows;
  grid.columns = width * p_.columns_per_panel;
  grid.n_blocks = ceil_div(panels_, width);
  if (rows.split > 0) {
    const double saved = rows.multiply - rows.split;
    grid.saved = std::max(0.0, static_cast<double>(grid.columns) * saved - rows.split_a);
  }
  grid.least_waves = static_cast<double>(p_.batch * rows.m_blocks * grid.n_blocks) /
                     static_cast<double>(target_.cores);
  return grid;
}

double BlockModel::least(const Rows& rows) const {
  const double tiles =
      static_cast<double>(p_.batch * rows.m_blocks) / static_cast<double>(target_.cores);
  const double saved = rows.split > 0 ? std::max(0.0, rows.multiply - rows.split) : 0;
  return tiles * static_cast<double>(panels_ * p_.columns_per_panel) * (rows.column - saved) +
         rows.passed;
}

double BlockModel::tile(const Grid& grid, const BlockShape& shape) const {
  return static_cast<double>(grid.columns) *
             (grid.rows.column + (shape.pack_a ? 0 : grid.rows.in_sets)) +
         grid.rows.a / tiles_near_a(grid, shape) + (shape.pack_b ? first_packed_ : first_) +
         grid.rows.passes + t_.tile_start - grid.saved;
}

// Windows are multiplied where they lie.
bool BlockModel::splits() const {
  return target_.splitting.rows > 0 && p_.element_bytes == sizeof(float) && p_.bundle == 1 &&
         !p_.columns_b && p_.prologue.taps == 0;
}

// Tiles that share a kept operand go together.
double BlockModel::waves(const Grid& grid, const BlockShape& shape) const {
  const bool kept = shape.keep_b || shape.keep_inner_b || p_.whole_k || shape.keep_a;
  const int64_t m_blocks = grid.rows.m_blocks, n_blocks = grid.n_blocks;
  const int64_t matrices = n_blocks == 1 ? sharing_ : 1;
  const int64_t run = shape.rows_outer ? n_blocks : m_blocks * matrices;
  const int64_t runs = shape.rows_outer ? p_.batch * m_blocks
                       : n_blocks == 1  ? p_.b_batch
                                        : p_.batch * n_blocks;
  const int64_t claim = claimed_run(runs, run, kept, target_.cores);
  const int64_t claims = claim == 1 ? runs * run : ceil_div(runs * run, claim);
  return static_cast<double>(ceil_div(claims, target_.cores) * claim);
}

double BlockModel::passed(const Grid& grid, const BlockShape& shape) const {
  return shape.rows_outer || grid.n_blocks == 1 ? grid.rows.passed : passed_by_columns_;
}

// Of values with so many elements in a row, as much as the caches of the cores hold: what does not
// lie there comes from farther away, whoever wrote it. Beside a B that is no constant, A need not
// be what kernels leave that go row by row.
double BlockModel::passed_share(int64_t elements) const {
  if (!p_.panels) return 0;
  const double bytes = static_cast<double>(p_.batch * p_.m * elements * p_.element_bytes);
  return std::min(1.0, static_cast<double>(target_.local_bytes * target_.cores) / bytes);
}

// Kernels that work row by row leave an equal share of the rows in the caches of every core, in the
// order of the tiles. Rows that a core touches beyond its share come from other caches, and results
// go where others have read or written. Of so many blocks of rows, each of which has neighbours for
// tiles.
double BlockModel::passed_by(int64_t blocks) const {
  const int64_t beyond = target_.cores - std::gcd(blocks, target_.cores);
  return passed_ * static_cast<double>(beyond) / static_cast<double>(blocks);
}

int64_t BlockModel::padded_inner() const { return round_up(p_.k, p_.columns_per_panel); }

// Of a tile.
double BlockModel::inner_product(const Grid& grid, const BlockShape& shape) const {
  if (p_.inner.k == 0) return 0;
  const auto rows = static_cast<double>(shape.rows), k = static_cast<double>(inner_steps_);
  const auto columns = static_cast<double>(padded_inner());
  const auto reuse = static_cast<double>(grid.rows.m_blocks * p_.batch / p_.inner.b_batch);
  double cost = rows * columns * k + columns * k * t_.near + rows * k * t_.near;
  if (p_.inner.pack_b) cost += columns * k * pack() / (shape.keep_inner_b ? reuse : 1);
  if (p_.inner.pack_a) cost += rows * k * pack();
  return cost + prologue(p_.inner.prologue, shape.rows, p_.inner.k);
}

// Of `rows` times k elements of A. Windows read their images from the caches that B passes through.
double BlockModel::prologue(const Prologue& prologue, int64_t rows, int64_t k) const {
  const int64_t b = p_.k * p_.n + p_.inner.k * (p_.inner.k > 0 ? p_.k : 0);
  const bool far = b * p_.element_bytes > target_.local_bytes / 2;
  const double windows = far ? t_.far_window * static_cast<double>(prologue.window_rows) : 0;
  return static_cast<double>(rows * k) * (work_of(prologue, t_) + windows);
}

// Tiles that a core computes from one block of A.
double BlockModel::tiles_of_a(const Grid& grid, const BlockShape& shape) const {
  if (!shape.rows_outer || (shape.pack_a && !shape.keep_a && !p_.whole_k)) return 1;
  return static_cast<double>(
      claimed_run(p_.batch * grid.rows.m_blocks, grid.n_blocks, true, target_.cores));
}

// Tiles in a row that find A, read in place, in the core's caches.
double BlockModel::tiles_near_a(const Grid& grid, const BlockShape& shape) const {
  const bool row = grid.rows.near && (shape.rows_outer || grid.rows.m_blocks == 1);
  return row ? static_cast<double>(grid.n_blocks) : 1;
}

// Per element of B, which comes from memory once: few rows wait for it.
double BlockModel::traffic_of_b(int64_t rows) const {
  return std::max(t_.far, t_.from_rows - static_cast<double>(rows));
}

// Per row of B in the tile: nobody fetched ahead what the row begins with.
double BlockModel::first_of_row(bool packs) const {
  const bool rows = p_.readable_b && !p_.panels && !p_.columns_b;
  const double bytes = static_cast<double>(p_.b_batch * p_.n * p_.k * p_.element_bytes);
  const bool far = bytes > static_cast<double>(target_.local_bytes * target_.cores);
  if (packs) return rows && far ? t_.first_of_packed_row : 0;
  return rows && far ? t_.first_of_row : p_.columns_per_panel * t_.first_panel * panel_share_;
}

// The choice avoids all of it the same: other work on the machine may make it dearer.
double BlockModel::hidden(const Grid& grid, const BlockShape& shape) const {
  const auto b = products_ * static_cast<double>(grid.columns * steps_) * panel_share_;
  const auto inner_b = static_cast<double>(p_.inner.k == 0 ? 0 : padded_inner() * inner_steps_);
  return b * std::min(grid.rows.count, traffic_of_b(shape.rows)) +
         inner_b * std::min(grid.rows.count, t_.near) / tiles_of_a(grid, shape);
}

double BlockModel::above(const Grid& grid, const BlockShape& shape) const {
  const Rows& rows = grid.rows;
  const auto columns = products_ * static_cast<double>(grid.columns);
  const auto k = static_cast<double>(steps_);
  const auto k_blocks = static_cast<double>(ceil_div(steps_, shape.k_block));
  const auto traffic = [&](double elements) {
    const double bytes = elements * static_cast<double>(p_.element_bytes);
    return bytes <= 0.5 * static_cast<double>(target_.local_bytes) ? t_.near : t_.far;
  };
  // Every further block of k reads and writes C once more.
  double cost =
      columns * (k_blocks - 1) *
      (rows.k_block_of_column / products_ + 2 * rows.count * traffic(rows.count * columns));
  if (rows.count > static_cast<double>(grid.columns)) {
    cost += columns * k * traffic(columns * static_cast<double>(shape.k_block));
  }
  if (shape.pack_b) {
    const int64_t uses = shape.keep_b ? rows.m_blocks * sharing_ : 1;
    cost += columns * k * pack() / static_cast<double>(uses);
  }
  if (p_.unpacks) cost += columns * k * pack();
  if (p_.rounds_a) cost += rows.count * k * pack();
  double once = rows.prologue + inner_product(grid, shape);  // for all tiles that share A
  if (shape.pack_a) once += rows.count * k * (p_.pack_a ? pack() : t_.pack_rows);
  if (p_.whole_k && p_.bundle > 1) once += rows.count * k * pack();
  return once == 0 ? cost : cost + once / tiles_of_a(grid, shape);
}

BlockCost BlockModel::cost(const Grid& grid, const BlockShape& shape) const {
  return {waves(grid, shape),  tile(grid, shape),   above(grid, shape),
          passed(grid, shape), hidden(grid, shape), t_.late_core};
}

BlockCost cost_of(const BlockProblem& problem, const Target& target, const BlockShape& shape) {
  const BlockModel model(problem, target);
  const int64_t width = ceil_div(shape.columns, problem.columns_per_panel);
  return model.cost(model.grid(model.of_rows(shape.rows), width), shape);
}

}  // namespace dvm
