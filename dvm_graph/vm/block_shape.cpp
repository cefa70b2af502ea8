#include "vm/block_shape.h"

#include <algorithm>
#include <cmath>

namespace dvm {
namespace {

// Costs in multiply-adds of the cube unit, per element moved or computed.
constexpr double kNearTraffic = 3, kFarTraffic = 8;  // operand within / beyond local-memory size
constexpr double kPack = 8;
constexpr double kVectorOperation = 6;
constexpr double kTileOverhead = 8;         // per element of Target::tile_overhead
constexpr int64_t kMostKBlocks = 16;        // unrolled in the body
constexpr int64_t kMostColumnBlocks = 32;   // as are those of the inner product
constexpr int64_t kMostRegisterBlocks = 8;  // rows of a tile with an inner product
constexpr int kRowChoices = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

class Chooser {
 public:
  Chooser(const BlockProblem& problem, const Target& target, int64_t local_bytes)
      : p_(problem), target_(target), local_bytes_(local_bytes) {}

  BlockShape choose() {
    if (p_.inner.k > 0) return choose_with_inner();
    const int64_t register_rows = std::max(1, target_.matmul_mr);
    const int64_t preferred = target_.matmul_rows > 0 ? target_.matmul_rows : 8 * register_rows;
    int64_t blocks = ceil_div(p_.m, preferred);
    for (int choice = 0; choice < kRowChoices; ++choice, blocks *= 2) {
      const int64_t rows = std::min(p_.m, round_up(ceil_div(p_.m, blocks), register_rows));
      consider_columns(rows);
      if (rows <= register_rows) break;
    }
    // Memory so small that only register blocks fit.
    if (best_.rows == 0) consider_columns(std::min(p_.m, register_rows));
    if (best_.rows == 0) consider_columns(1);
    return best_;
  }

 private:
  // Small blocks of rows: whole rows of A lie in local memory, the nearer the better.
  BlockShape choose_with_inner() {
    const int64_t register_rows = std::max(1, target_.matmul_mr);
    for (int64_t blocks = 1; blocks <= kMostRegisterBlocks; blocks *= 2) {
      consider_columns(ceil_div(p_.m, ceil_div(p_.m, blocks * register_rows)));
      if (blocks * register_rows >= p_.m) break;
    }
    for (int64_t rows = register_rows / 2; best_.rows == 0 && rows > 0; rows /= 2) {
      consider_columns(std::min(p_.m, rows));
    }
    return best_;
  }

  void consider_columns(int64_t rows) {
    const int64_t panels = ceil_div(p_.n, p_.columns_per_panel);
    if (p_.whole_rows) return consider(rows, panels, panels);
    int64_t previous = 0;
    for (int64_t wanted = 1;; wanted = wanted < 4 ? wanted + 1 : wanted * 3 / 2) {
      const int64_t blocks = ceil_div(panels, std::min(wanted, panels));
      const int64_t width = ceil_div(panels, blocks);
      if (width != previous && (!p_.equal_panels || width * blocks == panels)) {
        consider(rows, width, panels);
      }
      previous = width;
      if (wanted >= panels) return;
    }
  }

  void consider(int64_t rows, int64_t width, int64_t panels) {
    BlockShape shape;
    shape.rows = rows;
    shape.columns = std::min(p_.n, width * p_.columns_per_panel);
    // The side that costs more to bring in stays while the other one passes.
    const bool stationary_a = p_.whole_k || (p_.pack_a && !p_.pack_b);
    shape.rows_outer = stationary_a && width < panels;
    shape.k_block = k_block(p_.k);
    shape.pack_b = p_.pack_b;
    const int64_t m_blocks = ceil_div(p_.m, rows), n_blocks = ceil_div(panels, width);
    if (p_.inner.k > 0) return consider_inner(shape, m_blocks, n_blocks);
    shape.keep_b = p_.pack_b && !shape.rows_outer && m_blocks > 1 &&
                   padded(shape) * p_.k * p_.element_bytes <= local_bytes_ / 2;
    if (fit(shape)) judge(shape, m_blocks, n_blocks);
  }

  // Both B stay, or that of the inner product, or none.
  void consider_inner(BlockShape shape, int64_t m_blocks, int64_t n_blocks) {
    shape.inner_k_block = k_block(p_.inner.k);
    const bool shared = !shape.rows_outer && m_blocks * p_.batch > p_.b_batch;
    const bool shared_inner = m_blocks * p_.batch > p_.inner.b_batch;
    for (int kept = 2; kept >= 0; --kept) {
      shape.keep_b = kept == 2 && p_.pack_b && shared;
      shape.keep_inner_b = kept >= 1 && p_.inner.pack_b && shared_inner;
      shape.pack_b = p_.pack_b && (shape.keep_b || !p_.readable_b);
      if (fit(shape)) judge(shape, m_blocks, n_blocks);
    }
  }

  void judge(const BlockShape& shape, int64_t m_blocks, int64_t n_blocks) {
    const int64_t tiles = p_.batch * m_blocks * n_blocks;
    const auto waves = static_cast<double>(ceil_div(tiles, target_.cores));
    const double cost = waves * tile_cost(shape, m_blocks, n_blocks);
    if (cost < best_cost_) {
      best_cost_ = cost;
      best_ = shape;
    }
  }

  int64_t padded(const BlockShape& shape) const {
    return round_up(shape.columns, p_.columns_per_panel);
  }

  int64_t k_block(int64_t k) const {
    if (target_.matmul_k_block <= 0) return k;
    const int64_t blocks = std::min(ceil_div(k, target_.matmul_k_block), kMostKBlocks);
    return ceil_div(k, blocks);
  }

  // Shortens the k block until the operands fit; false where nothing does.
  bool fit(BlockShape& shape) const {
    const int64_t c = p_.local_c ? 2 * shape.rows * shape.columns : 0;
    const int64_t inner_b = shape.keep_inner_b ? padded_inner() * p_.inner.k : 0;
    const int64_t fixed = c + (p_.whole_k ? 2 * shape.rows * p_.k : 0) +
                          (shape.keep_b ? padded(shape) * p_.k : 0) + inner_b;
    int64_t per_step = 0;
    if (p_.pack_a && !p_.whole_k) {
      per_step += shape.rows_outer ? 0 : shape.rows;
    }
    const int64_t kept_a = p_.pack_a && !p_.whole_k && shape.rows_outer ? shape.rows * p_.k : 0;
    if (shape.pack_b && !shape.keep_b) per_step += padded(shape);
    const int64_t room = local_bytes_ / p_.element_bytes - fixed - kept_a;
    if (room < 0 || (p_.inner.k > 0 && !fit_inner(shape, room))) return false;
    if (per_step * shape.k_block <= room) return true;
    const int64_t most = room / per_step;
    if (most * kMostKBlocks < p_.k) return false;
    shape.k_block = ceil_div(p_.k, ceil_div(p_.k, most));
    return true;
  }

  int64_t padded_inner() const { return round_up(p_.k, p_.columns_per_panel); }

  // Cuts the columns of the inner product until its operands fit.
  bool fit_inner(BlockShape& shape, int64_t room) const {
    shape.inner_columns = padded_inner();
    const bool local_panels = p_.inner.panels && !target_.unified_memory;
    if (p_.inner.pack_a) room -= shape.rows * shape.inner_k_block;
    if (room < 0) return false;
    if (shape.keep_inner_b || !(p_.inner.pack_b || local_panels)) return true;
    const int64_t panel = shape.inner_k_block * p_.columns_per_panel;
    const int64_t panels = ceil_div(p_.k, p_.columns_per_panel);
    if (local_panels) return panels * p_.columns_per_panel * p_.inner.k <= room;
    const int64_t most = room / panel;
    if (most == 0 || panels > most * kMostColumnBlocks) return false;
    shape.inner_columns = ceil_div(panels, ceil_div(panels, most)) * p_.columns_per_panel;
    return true;
  }

  // Of a tile's inner product.
  double inner_cost(const BlockShape& shape, int64_t m_blocks) const {
    if (p_.inner.k == 0) return 0;
    const auto rows = static_cast<double>(shape.rows), k = static_cast<double>(p_.inner.k);
    const auto columns = static_cast<double>(padded_inner());
    const auto reuse = static_cast<double>(m_blocks * p_.batch / p_.inner.b_batch);
    double cost = rows * columns * k + columns * k * kNearTraffic + rows * k * kNearTraffic;
    if (p_.inner.pack_b) cost += columns * k * kPack / (shape.keep_inner_b ? reuse : 1);
    if (p_.inner.pack_a) cost += rows * k * kPack;
    return cost;
  }

  double tile_cost(const BlockShape& shape, int64_t m_blocks, int64_t n_blocks) const {
    const auto rows = static_cast<double>(shape.rows);
    const auto columns = static_cast<double>(padded(shape));
    const auto k = static_cast<double>(p_.k);
    const double operands = (rows + columns) * k * static_cast<double>(p_.element_bytes);
    const bool near = operands <= 0.75 * static_cast<double>(target_.local_bytes);
    double cost = rows * columns * k;
    cost += columns * k * (near && m_blocks > 1 ? kNearTraffic : kFarTraffic);
    cost += rows * k * kNearTraffic;
    if (shape.pack_b) {
      const int64_t uses = shape.keep_b ? m_blocks * p_.batch / p_.b_batch : 1;
      cost += columns * k * kPack / static_cast<double>(uses);
    }
    const auto shared_a = static_cast<double>(shape.rows_outer ? n_blocks : 1);
    if (p_.pack_a) cost += rows * k * kPack / shared_a;
    cost += rows * k * kVectorOperation * p_.prologue_nodes / shared_a;
    cost += inner_cost(shape, m_blocks) / shared_a;
    cost += rows * columns * kVectorOperation * (1 + p_.epilogue_nodes);
    return cost + kTileOverhead * target_.tile_overhead;
  }

  const BlockProblem& p_;
  const Target& target_;
  const int64_t local_bytes_;
  BlockShape best_;
  double best_cost_ = INFINITY;
};

}  // namespace

BlockShape choose_block(const BlockProblem& problem, const Target& target, int64_t local_bytes) {
  return Chooser(problem, target, local_bytes).choose();
}

}  // namespace dvm
