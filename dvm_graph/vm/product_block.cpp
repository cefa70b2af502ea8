#include "vm/product_block.h"

#include <algorithm>

#include "kernels/numbers.h"

namespace dvm {
namespace {

constexpr int64_t kMostSteps = 8;  // of a chunk: instructions of the body
constexpr int64_t kPlaces = 2;
constexpr int64_t kSumBytes = 4;

int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Rows and columns that are tried: multiples of the unit's block by 1, 1.5, 2, 3, 4, 6, ...
template <class Visit>
void for_each_size(int64_t unit, int64_t extent, Visit visit) {
  const int64_t whole = round_up(extent, unit);
  for (int64_t size = unit; size < whole; size *= 2) {
    visit(size);
    if (size % (2 * unit) == 0 && size / 2 * 3 < whole) visit(size / 2 * 3);
  }
  visit(whole);
}

// Cuts k into chunks and steps of about equal sizes. False: not even one step fits.
bool cut_depth(const ProductProblem& p, const Target& t, ProductBlock& block) {
  const int64_t unit = t.matmul_mr, e = p.element_bytes;
  const int64_t row = block.rows * e * kPlaces, column = block.columns * e * kPlaces;
  const int64_t bias = p.bias ? block.columns * kSumBytes * kPlaces : 0;
  const int64_t step = std::min(t.l0a_bytes / row, t.l0b_bytes / column) / unit * unit;
  const int64_t chunk =
      std::min((t.l1_bytes - bias) / (row + column) / unit * unit, step * kMostSteps);
  if (step <= 0 || chunk <= 0) return false;
  const int64_t depth = round_up(p.k, unit);
  // Steps in pairs: the first one of a tile then takes another place than the last one before it.
  const int64_t most = chunk / step, steps = most > 1 ? most / kPlaces * kPlaces : 1;
  const int64_t length = steps > 1 ? steps * step : chunk;
  const int64_t even = ceil_div(depth, ceil_div(depth, length));
  block.step = round_up(ceil_div(even, std::min(steps, ceil_div(even, unit))), unit);
  block.chunk = std::min(length, round_up(even, block.step));
  return true;
}

bool fits(const ProductProblem& p, const Target& t, const ProductBlock& block) {
  if (block.rows * block.columns * kSumBytes > t.l0c_bytes) return false;
  return !p.bias || block.columns * kSumBytes <= t.bias_bytes;
}

}  // namespace

double ProductCost::total() const {
  return std::max(waves * (std::max({multiply, load, feed}) + fill + drain), memory);
}

ProductCost cost_of(const ProductProblem& p, const Target& t, const ProductBlock& block) {
  const double cores = static_cast<double>(t.cores_of(KernelKind::cube));
  const double share = static_cast<double>(t.cores) / cores;  // rates are those of a vector core
  const double rows = static_cast<double>(block.rows), columns = static_cast<double>(block.columns);
  const double e = static_cast<double>(p.element_bytes);
  const double row_blocks = static_cast<double>(ceil_div(p.m, block.rows));
  const double column_blocks = static_cast<double>(ceil_div(p.n, block.columns));
  const double chunks = static_cast<double>(ceil_div(p.k, block.chunk));
  const double steps = static_cast<double>(ceil_div(p.k, block.step));
  const double depth = static_cast<double>(round_up(p.k, t.matmul_mr));
  const Costs& costs = t.costs;
  ProductCost cost;
  const int64_t blocks = p.batch * ceil_div(p.m, block.rows) * ceil_div(p.n, block.columns);
  cost.waves = static_cast<double>(ceil_div(blocks, t.cores_of(KernelKind::cube)));
  cost.multiply =
      rows * columns * depth / (costs.multiply_adds * share) + steps * costs.block_start;
  cost.load = (rows + columns) * depth * e / costs.shared_read;
  cost.feed =
      (rows + columns) * depth * e / (costs.private_read * share) + 2 * steps * costs.block_start;
  cost.fill = costs.memory_latency + cost.load / chunks / cost.waves;
  cost.drain = rows * columns * static_cast<double>(p.result_bytes) / (costs.memory_write * share);
  // The operand of the inner loop comes again for every round of cores, unless the cache holds it.
  const double a = static_cast<double>(p.a_batch * p.m * p.k) * e;
  const double b = static_cast<double>(p.b_batch * p.k * p.n) * e;
  const double passes = std::max(1.0, (block.rows_outer ? row_blocks : column_blocks) / cores);
  const double inner = block.rows_outer ? b : a, outer = block.rows_outer ? a : b;
  const double c = static_cast<double>(p.batch * p.m * p.n * p.result_bytes);
  const bool held = inner <= static_cast<double>(t.shared_bytes) / 2;
  cost.memory =
      (outer + inner * (held ? 1 : passes)) / (costs.memory_read * static_cast<double>(t.cores)) +
      c / (costs.memory_write * static_cast<double>(t.cores));
  return cost;
}

ProductBlock choose_product_block(const ProductProblem& problem, const Target& target) {
  ProductBlock best;
  const int64_t unit = target.matmul_mr;
  for_each_size(target.matmul_mr, problem.m, [&](int64_t rows) {
    for_each_size(unit, problem.n, [&](int64_t columns) {
      ProductBlock block{rows, columns, 0, 0, false, 0};
      if (!fits(problem, target, block) || !cut_depth(problem, target, block)) return;
      for (const bool rows_outer : {false, true}) {
        block.rows_outer = rows_outer;
        block.seconds = cost_of(problem, target, block).total();
        if (best.rows == 0 || block.seconds < best.seconds) best = block;
      }
    });
  });
  return best;
}

}  // namespace dvm
