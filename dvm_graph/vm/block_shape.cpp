#include "vm/block_shape.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dvm {
namespace {

// Costs in multiply-adds of the cube unit, per element moved or computed.
constexpr double kNearTraffic = 1, kFarTraffic = 4;  // within / beyond local-memory size
constexpr double kPassingTraffic = 2;                // of A, while a B that was packed stays
constexpr double kFarPassing = 8;                    // of all cores, from stage to stage
constexpr double kPassed = 40;                       // from the caches of one core to another's
constexpr double kFirstPanel = 2;                    // waits for memory
constexpr double kFirstOfRow = 600;                  // of a row of a direct B that lies far
constexpr double kFirstOfPackedRow = 200;            // where nothing waits but the packing
constexpr double kBandwidth = 16;                    // rows that pay for reading B from memory
constexpr double kPack = 8, kPackRows = 10;
constexpr double kVectorOperation = 6;
constexpr double kFarWindow = 24;           // a row of a window, where B has pushed the image out
constexpr double kBlockOverhead = 1500;     // of a register block
constexpr double kSharedSet = 0.005;        // of the time, for each row of A in a cache set
constexpr double kImbalance = 0.08;         // of a tile, until the last core is done
constexpr double kTileOverhead = 8;         // per element of Target::tile_overhead
constexpr int64_t kMostKBlocks = 16;        // unrolled in the body
constexpr int64_t kMostColumnBlocks = 32;   // as are those of the inner product
constexpr int64_t kMostRegisterBlocks = 8;  // rows of a tile with an inner product
constexpr int kRowChoices = 4;
constexpr int64_t kWaveChoices = 4;
constexpr int64_t kLeastPiece = 256;
constexpr int64_t kMostPieces = 4;  // for each core
constexpr double kLeastSaving = 2;  // of a split, in what its second stage costs
constexpr int kRoomInSet = 4;       // rows of A in a set that do no harm

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Per element.
double work_of(const Prologue& prologue) {
  return kVectorOperation * prologue.operators + static_cast<double>(prologue.taps);
}

class Chooser {
 public:
  Chooser(const BlockProblem& problem, const Target& target, int64_t local_bytes)
      : p_(problem),
        target_(target),
        local_bytes_(local_bytes),
        steps_(ceil_div(problem.k, problem.pair)),
        inner_steps_(ceil_div(problem.inner.k, problem.pair)),
        sharing_(problem.batch / problem.b_batch),
        room_(local_bytes / problem.element_bytes),
        panels_(ceil_div(problem.n, problem.columns_per_panel)),
        register_rows_(std::max(1, target.matmul_mr)),
        panel_share_(problem.panels ? static_cast<double>(problem.panel_bytes) /
                                          static_cast<double>(problem.element_bytes)
                                    : 1),
        first_packed_(static_cast<double>(steps_) * first_of_row(true)),
        first_(static_cast<double>(steps_) * first_of_row(false)),
        overhead_(kTileOverhead * target.tile_overhead),
        passed_(kPassed * static_cast<double>(problem.batch * problem.m) / target.cores *
                (passed_share(problem.k) * static_cast<double>(problem.k) +
                 passed_share(problem.n) * static_cast<double>(problem.n) / target.cores)),
        passed_by_columns_(cost_of_passed(problem.batch)) {}

  BlockShape choose() {
    if (p_.inner.k > 0) return choose_with_inner();
    const int64_t preferred = target_.matmul_rows > 0 ? target_.matmul_rows : 8 * register_rows_;
    int64_t blocks = ceil_div(p_.m, preferred);
    if (blocks > 1) consider_columns(p_.m);
    const int64_t even = round_up(blocks, target_.cores);  // rows stay with their cores
    if (p_.panels && !comes_by_doubling(even, blocks)) consider_columns(ceil_div(p_.m, even));
    for (int choice = 0; choice < kRowChoices; ++choice, blocks *= 2) {
      const int64_t rows = ceil_div(p_.m, blocks);
      consider_columns(rows);
      if (rows <= register_rows_) break;
    }
    // Whole rows leave no columns to balance the cores with.
    const int64_t fewest = std::max<int64_t>(1, p_.m / (preferred * target_.cores));
    for (int64_t waves = fewest; p_.whole_rows && waves < fewest + kWaveChoices; ++waves) {
      consider_columns(ceil_div(p_.m, waves * target_.cores));
    }
    // Memory so small that only register blocks fit.
    if (best_.rows == 0) consider_columns(std::min(p_.m, register_rows_));
    if (best_.rows == 0) consider_columns(1);
    return best_;
  }

 private:
  // Whether the choices that double `blocks` come to `wanted`.
  static bool comes_by_doubling(int64_t wanted, int64_t blocks) {
    for (int choice = 0; choice < kRowChoices; ++choice, blocks *= 2) {
      if (blocks == wanted) return true;
    }
    return false;
  }

  // Small blocks of rows: whole rows of A lie in local memory, the nearer the better.
  BlockShape choose_with_inner() {
    for (int64_t blocks = 1; blocks <= kMostRegisterBlocks; blocks *= 2) {
      consider_columns(ceil_div(p_.m, ceil_div(p_.m, blocks * register_rows_)));
      if (blocks * register_rows_ >= p_.m) break;
    }
    for (int64_t rows = register_rows_ / 2; best_.rows == 0 && rows > 0; rows /= 2) {
      consider_columns(std::min(p_.m, rows));
    }
    return best_;
  }

  // What tiles of as many rows have in common.
  struct Rows {
    int64_t rows = 0, m_blocks = 0;
    int64_t k_block = 0;  // unless less fits
    bool share_sets = false;
    bool near = false;             // of A lie in the core's caches
    double count = 0;              // rows
    double a = 0;                  // cost of A as it comes from memory
    double prologue = 0;           // of computing it
    double column = 0;             // of a column of the tile, in one block of k
    double in_sets = 0;            // and that on top, where A that shares sets is read in place
    double k_block_of_column = 0;  // what each further one adds, without C
    double passed = 0;             // rows that cores touch beyond their shares
  };

  Rows describe(int64_t rows) const {
    Rows r;
    r.rows = rows;
    r.m_blocks = ceil_div(p_.m, rows);
    r.k_block = outer_k_block(rows);
    r.share_sets = rows > kRoomInSet && p_.rows_per_set > kRoomInSet;
    r.near = rows * p_.k * p_.element_bytes <= target_.local_bytes / 2;
    r.count = static_cast<double>(rows);
    const auto k = static_cast<double>(steps_);
    const bool passes = p_.pack_b && !p_.whole_k;
    r.a = r.count * k * (passes ? kPassingTraffic : kFarTraffic);
    r.prologue = prologue_cost(p_.prologue, rows, p_.k);
    r.passed = cost_of_passed(p_.batch * r.m_blocks);
    if (r.share_sets) r.in_sets = r.count * k * kSharedSet * p_.rows_per_set;
    r.k_block_of_column =
        static_cast<double>(ceil_div(rows, register_rows_)) * kBlockOverhead / p_.columns_per_panel;
    r.column = r.count * (k + kVectorOperation * (1 + p_.epilogue_nodes)) +
               k * traffic_of_b(rows) * panel_share_ + r.k_block_of_column;
    return r;
  }

  void consider_columns(int64_t rows) {
    rows_ = describe(rows);
    if (least_cost() >= best_cost_) return;
    if (p_.whole_rows) return consider(panels_, 1);
    int64_t previous = 0;
    for (int64_t wanted = 1;; wanted = wanted < 4 ? wanted + 1 : wanted * 3 / 2) {
      const int64_t blocks = ceil_div(panels_, std::min(wanted, panels_));
      const int64_t width = ceil_div(panels_, blocks);
      if (width != previous && (!p_.equal_panels || width * blocks == panels_)) {
        consider(width, blocks);
      }
      previous = width;
      if (wanted >= panels_) return;
    }
  }

  // Of any shape with these rows.
  double least_cost() const {
    const auto tiles = static_cast<double>(p_.batch * rows_.m_blocks) / target_.cores;
    return tiles * static_cast<double>(panels_ * p_.columns_per_panel) * rows_.column +
           rows_.passed;
  }

  // Tiles of so many panels, and as many of them side by side as there are blocks.
  void consider(int64_t width, int64_t blocks) {
    columns_ = width * p_.columns_per_panel;
    n_blocks_ = blocks;
    least_waves_ = static_cast<double>(p_.batch * rows_.m_blocks * blocks) / target_.cores;
    // The side that costs more to bring in stays while the other one passes.
    const bool several = blocks > 1;
    consider(p_.pack_a, several && (p_.whole_k || (p_.pack_a && !p_.pack_b)));
    if (p_.pack_a || p_.whole_k) return;
    if (several && rows_.rows < p_.m && !p_.pack_b) consider(false, true);
    if (!rows_.share_sets) return;
    consider(true, false);
    if (several && !p_.pack_b) consider(true, true);
  }

  void consider(bool pack_a, bool rows_outer) {
    BlockShape shape;
    shape.rows = rows_.rows;
    shape.columns = std::min(p_.n, columns_);
    shape.pack_a = pack_a;
    shape.pack_b = p_.pack_b;
    shape.rows_outer = rows_outer;
    shape.k_block = rows_.k_block;
    shape.keep_a = rows_outer && pack_a && !p_.whole_k;
    if (p_.inner.k > 0) return consider_inner(shape);
    shape.keep_b = p_.pack_b && !shape.rows_outer && rows_.m_blocks > 1 &&
                   columns_ * steps_ * p_.element_bytes <= local_bytes_ / 2;
    if (judge(shape) || !shape.keep_a) return;
    shape.keep_a = false;
    judge(shape);
  }

  // Both B stay, or that of the inner product, or none.
  void consider_inner(const BlockShape& outer) {
    const bool shared = !outer.rows_outer && rows_.m_blocks * p_.batch > p_.b_batch;
    const bool shared_inner = rows_.m_blocks * p_.batch > p_.inner.b_batch;
    for (int kept = 2; kept >= 0; --kept) {
      BlockShape shape = outer;
      shape.inner_k_block = k_block(inner_steps_, target_.matmul_k_block);
      shape.keep_b = kept == 2 && p_.pack_b && shared;
      shape.keep_inner_b = kept >= 1 && p_.inner.pack_b && shared_inner;
      shape.pack_b = p_.pack_b && (shape.keep_b || !p_.readable_b);
      judge(shape);
    }
  }

  // Makes the shape fit, and keeps it if it is the best so far. False: it is too large.
  bool judge(BlockShape& shape) {
    const double base = base_cost(shape);
    if ((least_waves_ + kImbalance) * base >= best_cost_) return true;
    const double waves = waves_of(shape);
    const bool by_rows = shape.rows_outer || n_blocks_ == 1;
    const double passed = by_rows ? rows_.passed : passed_by_columns_;
    if ((waves + kImbalance) * base + passed >= best_cost_) return true;
    if (!fit(shape)) return false;
    const double cost = (waves + kImbalance) * (base + cost_above(shape)) + passed;
    if (cost >= best_cost_) return true;
    best_cost_ = cost;
    best_ = shape;
    // Whether kernels run apart is another question: those pass rows as well.
    best_.cost = cost - passed - waves * hidden(shape);
    return true;
  }

  // Tiles that the core with most of them computes. Those that share a kept operand go together.
  double waves_of(const BlockShape& shape) const {
    const bool kept = shape.keep_b || shape.keep_inner_b || p_.whole_k || shape.keep_a;
    const int64_t matrices = n_blocks_ == 1 ? sharing_ : 1;
    const int64_t run = shape.rows_outer ? n_blocks_ : rows_.m_blocks * matrices;
    const int64_t runs = shape.rows_outer ? p_.batch * rows_.m_blocks
                         : n_blocks_ == 1 ? p_.b_batch
                                          : p_.batch * n_blocks_;
    const int64_t claim = claimed_run(runs, run, kept, target_.cores);
    const int64_t claims = claim == 1 ? runs * run : ceil_div(runs * run, claim);
    return static_cast<double>(ceil_div(claims, target_.cores) * claim);
  }

  // Of values with so many elements in a row, as much as the caches of the cores hold: what does
  // not lie there comes from farther away, whoever wrote it. Beside a B that is no constant, A need
  // not be what kernels leave that go row by row.
  double passed_share(int64_t elements) const {
    if (!p_.panels) return 0;
    const double bytes = static_cast<double>(p_.batch * p_.m * elements * p_.element_bytes);
    return std::min(1.0, static_cast<double>(target_.local_bytes * target_.cores) / bytes);
  }

  // Kernels that work row by row leave an equal share of the rows in the caches of every core, in
  // the order of the tiles. Rows that a core touches beyond its share come from other caches, and
  // results go where others have read or written. Of so many blocks of rows, each of which has
  // neighbours for tiles.
  double cost_of_passed(int64_t blocks) const {
    const int64_t beyond = target_.cores - std::gcd(blocks, int64_t{target_.cores});
    return passed_ * static_cast<double>(beyond) / static_cast<double>(blocks);
  }

  int64_t outer_k_block(int64_t rows) const {
    // Panels share the cache.
    if (p_.pack_b) return k_block(steps_, target_.matmul_k_block * 3 / 4);
    const bool near_a = rows * steps_ * p_.element_bytes <= target_.local_bytes / 2;
    return near_a ? steps_ : k_block(steps_, target_.matmul_k_block);
  }

  static int64_t k_block(int64_t k, int64_t depth) {
    if (depth <= 0) return k;
    return ceil_div(k, std::min(ceil_div(k, depth), kMostKBlocks));
  }

  // Shortens the k block until the operands fit; false where nothing does.
  bool fit(BlockShape& shape) const {
    const bool block_a = shape.pack_a && !p_.whole_k;
    const int64_t c = p_.local_c ? 2 * shape.rows * shape.columns : 0;
    const int64_t inner_b = shape.keep_inner_b ? padded_inner() * inner_steps_ : 0;
    const int64_t computed = 2 * shape.rows * p_.k + (p_.pair > 1 ? shape.rows * steps_ : 0);
    const int64_t fixed =
        c + (p_.whole_k ? computed : 0) + (shape.keep_b ? columns_ * steps_ : 0) + inner_b;
    const int64_t rows = shape.rows * p_.packed_a;
    int64_t per_step = 0;
    if (block_a) per_step += shape.keep_a ? 0 : rows;
    const int64_t kept_a = shape.keep_a ? rows * steps_ : 0;
    const bool passing_b = shape.pack_b && !shape.keep_b;
    if (passing_b) per_step += columns_;
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

  int64_t padded_inner() const { return round_up(p_.k, p_.columns_per_panel); }

  // Cuts the columns of the inner product until its operands fit.
  bool fit_inner(BlockShape& shape, int64_t room) const {
    shape.inner_columns = padded_inner();
    const bool local_panels = p_.inner.panels && !target_.unified_memory;
    if (p_.inner.whole_k) {
      room -= shape.rows * (2 * p_.inner.k + (p_.pair > 1 ? inner_steps_ : 0));
    } else if (p_.inner.pack_a) {
      room -= shape.rows * packed_row(shape.inner_k_block, p_.element_bytes);
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

  // Of a tile's inner product.
  double inner_cost(const BlockShape& shape) const {
    if (p_.inner.k == 0) return 0;
    const auto rows = static_cast<double>(shape.rows), k = static_cast<double>(inner_steps_);
    const auto columns = static_cast<double>(padded_inner());
    const auto reuse = static_cast<double>(rows_.m_blocks * p_.batch / p_.inner.b_batch);
    double cost = rows * columns * k + columns * k * kNearTraffic + rows * k * kNearTraffic;
    if (p_.inner.pack_b) cost += columns * k * pack_cost() / (shape.keep_inner_b ? reuse : 1);
    if (p_.inner.pack_a) cost += rows * k * pack_cost();
    return cost + prologue_cost(p_.inner.prologue, shape.rows, p_.inner.k);
  }

  // Of `rows` times k elements of A. Windows read their images from the caches that B passes
  // through.
  double prologue_cost(const Prologue& prologue, int64_t rows, int64_t k) const {
    const int64_t b = p_.k * p_.n + p_.inner.k * (p_.inner.k > 0 ? p_.k : 0);
    const bool far = b * p_.element_bytes > target_.local_bytes / 2;
    const double windows = far ? kFarWindow * static_cast<double>(prologue.window_rows) : 0;
    return static_cast<double>(rows * k) * (work_of(prologue) + windows);
  }

  double pack_cost() const { return kPack * p_.pair; }

  // Tiles that a core computes from one block of A.
  double tiles_of_a(const BlockShape& shape) const {
    if (!shape.rows_outer || (shape.pack_a && !shape.keep_a && !p_.whole_k)) return 1;
    return static_cast<double>(
        claimed_run(p_.batch * rows_.m_blocks, n_blocks_, true, target_.cores));
  }

  // Tiles in a row that find A, read in place, in the core's caches.
  double tiles_near_a(const BlockShape& shape) const {
    const bool row = rows_.near && (shape.rows_outer || rows_.m_blocks == 1);
    return row ? static_cast<double>(n_blocks_) : 1;
  }

  // Per element of B, which comes from memory once: few rows wait for it.
  static double traffic_of_b(int64_t rows) {
    return std::max(kFarTraffic, kBandwidth - static_cast<double>(rows));
  }

  // Per row of B in the tile: nobody fetched ahead what the row begins with.
  double first_of_row(bool packs) const {
    const bool rows = p_.readable_b && !p_.panels && !p_.columns_b;
    const double bytes = static_cast<double>(p_.b_batch * p_.n * p_.k * p_.element_bytes);
    const bool far = bytes > static_cast<double>(target_.local_bytes * target_.cores);
    if (packs) return rows && far ? kFirstOfPackedRow : 0;
    return rows && far ? kFirstOfRow : p_.columns_per_panel * kFirstPanel * panel_share_;
  }

  // The cost of bringing in B that passes under the multiply-adds: the choice avoids it all the
  // same, other work on the machine may make it dearer.
  double hidden(const BlockShape& shape) const {
    const auto b = static_cast<double>(columns_ * steps_) * panel_share_;
    const auto inner_b = static_cast<double>(p_.inner.k == 0 ? 0 : padded_inner() * inner_steps_);
    return b * std::min(rows_.count, traffic_of_b(shape.rows)) +
           inner_b * std::min(rows_.count, kNearTraffic) / tiles_of_a(shape);
  }

  // Of a tile in one block of k, without what is packed or computed for it.
  double base_cost(const BlockShape& shape) const {
    return static_cast<double>(columns_) * (rows_.column + (shape.pack_a ? 0 : rows_.in_sets)) +
           rows_.a / tiles_near_a(shape) + (shape.pack_b ? first_packed_ : first_) + overhead_;
  }

  // And what comes on top of that.
  double cost_above(const BlockShape& shape) const {
    const auto columns = static_cast<double>(columns_);
    const auto k = static_cast<double>(steps_);
    const auto k_blocks = static_cast<double>(ceil_div(steps_, shape.k_block));
    const auto traffic = [&](double elements) {
      const double bytes = elements * static_cast<double>(p_.element_bytes);
      return bytes <= 0.5 * static_cast<double>(target_.local_bytes) ? kNearTraffic : kFarTraffic;
    };
    // Every further block of k reads and writes C once more.
    double cost = columns * (k_blocks - 1) *
                  (rows_.k_block_of_column + 2 * rows_.count * traffic(rows_.count * columns));
    if (rows_.count > columns) {
      cost += columns * k * traffic(columns * static_cast<double>(shape.k_block));
    }
    if (shape.pack_b) {
      const int64_t uses = shape.keep_b ? rows_.m_blocks * sharing_ : 1;
      cost += columns * k * pack_cost() / static_cast<double>(uses);
    }
    double once = rows_.prologue + inner_cost(shape);  // for all tiles that share A
    if (shape.pack_a) once += rows_.count * k * (p_.pack_a ? pack_cost() : kPackRows);
    if (p_.whole_k && p_.pair > 1) once += rows_.count * k * pack_cost();
    return once == 0 ? cost : cost + once / tiles_of_a(shape);
  }

  const BlockProblem& p_;
  const Target& target_;
  const int64_t local_bytes_;
  const int64_t steps_, inner_steps_;  // of k, in elements of A and B
  const int64_t sharing_;              // matrices A that a matrix B serves
  const int64_t room_;                 // elements in local memory
  const int64_t panels_, register_rows_;
  const double panel_share_;  // bytes of an element of B as it comes from memory, over those in use
  const double first_packed_, first_;  // of the rows of B, packed or not
  const double overhead_;              // of a tile
  const double passed_;                // of touching as many rows once more
  const double passed_by_columns_;     // of the rows that cores touch beyond their shares
  // At hand: rows of a tile, columns of whole panels, and tiles side by side.
  Rows rows_;
  int64_t columns_ = 0, n_blocks_ = 1;
  double least_waves_ = 0;  // tiles over cores: no order of them takes fewer
  BlockShape best_;
  double best_cost_ = INFINITY;
};

// What it takes to write a value to global memory, read it again, and start one more stage.
double cost_of_passing(double elements, const BlockProblem& problem, const Target& target) {
  const double bytes = elements * static_cast<double>(problem.element_bytes);
  const bool near = bytes <= static_cast<double>(target.local_bytes) * target.cores;
  return 2 * elements * (near ? kNearTraffic : kFarPassing) / target.cores +
         kTileOverhead * target.stage_overhead;
}

}  // namespace

int64_t packed_row(int64_t depth, int64_t element_bytes) {
  constexpr int64_t kBadStride = 1024, kPadding = 64;
  return depth * element_bytes % kBadStride == 0 ? depth + kPadding / element_bytes : depth;
}

int64_t claimed_run(int64_t runs, int64_t run, bool kept, int cores) {
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
  const bool chained = problem.inner.k > 0;
  if (chained ? problem.inner.whole_k : problem.whole_k) {
    BlockProblem rest = problem;
    (chained ? rest.inner.whole_k : rest.whole_k) = false;
    (chained ? rest.inner.pack_a : rest.pack_a) = problem.pair > 1;
    Prologue& prologue = chained ? rest.inner.prologue : rest.prologue;
    const double elements = rows * static_cast<double>(chained ? problem.inner.k : problem.k);
    const double work = elements * work_of(prologue) / target.cores;
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
  outer.pack_a = problem.pair > 1;
  outer.prologue = {};
  outer.inner = {};
  return cost_of(inner) + cost_of(outer) +
         cost_of_passing(rows * static_cast<double>(problem.k), problem, target);
}

int64_t choose_piece(const BlockProblem& problem, const Target& target, double whole) {
  if (problem.inner.k > 0 || problem.whole_k || problem.k < 2 * kLeastPiece) return 0;
  const int64_t blocks = ceil_div(problem.m, std::max(1, target.matmul_mr));
  const int64_t panels = problem.whole_rows ? 1 : ceil_div(problem.n, problem.columns_per_panel);
  const int64_t tiles = problem.batch * blocks * panels;
  if (tiles >= target.cores) return 0;
  // What idle cores could save at most of what the product takes at least, with B in the caches.
  const int64_t columns = problem.columns_b ? problem.n : panels * problem.columns_per_panel;
  const double work = static_cast<double>(problem.batch * columns * problem.k) *
                      (static_cast<double>(problem.m) + kFarTraffic);
  const double idle = 1 - static_cast<double>(tiles) / target.cores;
  if (work * idle < kLeastSaving * kTileOverhead * target.stage_overhead) return 0;
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
  return Chooser(problem, target, local_bytes).choose();
}

}  // namespace dvm
