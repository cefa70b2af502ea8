#include "vm/product_block.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/numbers.h"

namespace dvm {
namespace {

constexpr int64_t kMostSteps = 8;  // of a chunk: instructions of the body
constexpr int64_t kSumBytes = 4;
constexpr double kHeld = 0.5;         // of the shared cache, that an operand may fill to stay there
constexpr double kMostUneven = 1.15;  // blocks of a core, over those of even shares

int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Rows or columns that are tried, the longest first: all multiples of the unit's block up to a most
// of which none smaller gives as few blocks; or the most alone.
struct Sizes {
  struct Size {
    int64_t size;
    double blocks, inverse;
  };
  std::vector<Size>& all;

  Sizes(int64_t unit, int64_t extent, int64_t most, bool one, std::vector<Size>& scratch)
      : all(scratch) {
    all.clear();
    if (one) {
      const int64_t size = std::min(round_up(extent, unit), most);
      all.push_back(
          {size, static_cast<double>(ceil_div(extent, size)), 1 / static_cast<double>(size)});
      return;
    }
    for (int64_t size = std::min(round_up(extent, unit), most / unit * unit); size > 0;) {
      const int64_t blocks = ceil_div(extent, size);
      const int64_t even = round_up(ceil_div(extent, blocks), unit);
      all.push_back({even, static_cast<double>(blocks), 1 / static_cast<double>(even)});
      size = even - unit;
    }
  }
};

// Cuts k into chunks and steps of about equal sizes. False: not even one step fits.
bool cut_depth(const ProductProblem& p, const Target& t, ProductBlock& block) {
  const int64_t unit = t.matmul_mr, e = p.element_bytes;
  const int64_t row = block.rows * e * t.places, column = block.columns * e * t.places;
  const int64_t bias = p.bias ? block.columns * kSumBytes * t.places : 0;
  const int64_t step =
      std::min(t.l0a_bytes / row, t.l0b_bytes / (block.half * e * t.places)) / unit * unit;
  const int64_t chunk =
      std::min((t.l1_bytes - bias) / (row + column) / unit * unit, step * kMostSteps);
  if (step <= 0 || chunk <= 0) return false;
  const int64_t depth = round_up(p.k, unit);
  // Steps in pairs: the first one of a tile then takes another place than the last one before it.
  const int64_t most = chunk / step, steps = most > 1 ? most / t.places * t.places : 1;
  const int64_t length = steps > 1 ? steps * step : chunk;
  const int64_t even = ceil_div(depth, ceil_div(depth, length));
  block.step = round_up(ceil_div(even, std::min(steps, ceil_div(even, unit))), unit);
  block.chunk = std::min(length, round_up(even, block.step));
  return true;
}

// Where L0C holds one block alone, and sums may leave while others are made.
void halve(const Target& t, ProductBlock& block) {
  const int64_t half = round_up(ceil_div(block.columns, kMostHalves), t.matmul_nr);
  const bool one = t.places * block.rows * block.columns * kSumBytes > t.l0c_bytes;
  const bool two = kMostHalves * block.rows * half * kSumBytes <= t.l0c_bytes;
  block.halves = one && two && half < block.columns ? kMostHalves : 1;
  block.half = block.halves == 1 ? block.columns : half;
}

bool fits(const ProductProblem& p, const Target& t, const ProductBlock& block) {
  if (block.rows * block.columns * kSumBytes > t.l0c_bytes) return false;
  return !p.bias || block.columns * kSumBytes <= t.bias_bytes;
}

// The operand of the inner loop comes again for every round of cores, unless the cache holds it.
double memory_of(const ProductProblem& p, const Target& t, const ProductBlock& block) {
  const double cores = static_cast<double>(t.cores_of(KernelKind::cube));
  const double e = static_cast<double>(p.element_bytes);
  const double a = static_cast<double>(p.a_batch * p.m * p.k) * e;
  const double b = static_cast<double>(p.b_batch * p.k * p.n) * e;
  const int64_t lines = block.rows_outer ? ceil_div(p.m, block.rows) : ceil_div(p.n, block.columns);
  const double passes = std::max(1.0, static_cast<double>(lines) / cores);
  const double inner = block.rows_outer ? b : a, outer = block.rows_outer ? a : b;
  const double c = static_cast<double>(p.batch * p.m * p.n * p.result_bytes);
  const bool held = inner <= static_cast<double>(t.shared_bytes) * kHeld;
  return (outer + inner * (held ? 1 : passes)) /
             (t.costs.memory_read * static_cast<double>(t.cores)) +
         c / (t.costs.memory_write * static_cast<double>(t.cores));
}

}  // namespace

double ProductCost::work() const {
  const double block = in_turn ? multiply + load + feed : std::max({multiply, load, feed});
  return waves * (block + fill + drain) + last;
}

double ProductCost::total() const { return std::max(work(), memory); }

ProductCost cost_of(const ProductProblem& p, const Target& t, const ProductBlock& block) {
  const double cores = static_cast<double>(t.cores_of(KernelKind::cube));
  const double share = static_cast<double>(t.cores) / cores;  // rates are those of a vector core
  const double rows = static_cast<double>(block.rows), columns = static_cast<double>(block.columns);
  const double e = static_cast<double>(p.element_bytes);
  const auto halves = static_cast<double>(block.halves);
  const double chunks = static_cast<double>(ceil_div(p.k, block.chunk));
  const double steps = static_cast<double>(ceil_div(p.k, block.step));
  const double depth = static_cast<double>(round_up(p.k, t.matmul_mr));
  const Costs& costs = t.costs;
  ProductCost cost;
  cost.in_turn = t.places == 1;
  const int64_t blocks = p.batch * ceil_div(p.m, block.rows) * ceil_div(p.n, block.columns);
  cost.waves = static_cast<double>(ceil_div(blocks, t.cores_of(KernelKind::cube)));
  cost.multiply =
      rows * columns * depth / (costs.multiply_adds * share) + halves * steps * costs.block_start;
  cost.load = (rows + columns) * depth * e / costs.shared_read;
  cost.feed = (halves * rows + columns) * depth * e / (costs.private_read * share) +
              2 * halves * steps * costs.block_start;
  cost.fill = costs.memory_latency + cost.load / chunks / cost.waves;
  const double leave = rows * columns * static_cast<double>(p.result_bytes) /
                       (p.to_ring ? costs.core_transfer : costs.memory_write * share);
  // A half leaves while the other is multiplied by the last chunk, or by the first of the next
  // block.
  cost.drain = halves == 1 ? leave : std::max(0.0, leave - cost.multiply / chunks);
  cost.last = halves == 1 ? 0 : leave / halves;
  cost.memory = memory_of(p, t, block);
  return cost;
}

// Of all cuts that give no core much more than its share, the one that takes least, for the cube
// units and for memory: the cores of one row of regions read the same blocks of one operand, those
// of one column the same of the other. What a step reads stays for the next one; what is walked
// again stays if the cache has room.
Regions choose_regions(const ProductProblem& p, const Target& t, const ProductBlock& block) {
  const int64_t cores = t.cores_of(KernelKind::cube);
  const int64_t row_blocks = ceil_div(p.m, block.rows),
                column_blocks = ceil_div(p.n, block.columns);
  const int64_t outer = block.rows_outer ? row_blocks : column_blocks;
  const int64_t inner = block.rows_outer ? column_blocks : row_blocks;
  const auto bytes_of = [&](int64_t extent) {
    return static_cast<double>(extent * p.k * p.element_bytes);
  };
  const double of_outer = bytes_of(block.rows_outer ? p.m : p.n);
  const double of_inner = bytes_of(block.rows_outer ? p.n : p.m);
  const double multiply = cost_of(p, t, block).multiply;
  const double rate = t.costs.memory_read * static_cast<double>(t.cores);
  const auto room = static_cast<double>(t.shared_bytes);
  Regions best;
  double least = 0;
  for (int64_t across = 1; across <= cores; ++across) {
    if (cores % across != 0) continue;
    const int64_t along = cores / across;
    const int64_t high = ceil_div(outer, across), wide = ceil_div(inner, along);
    const auto most = static_cast<double>(high * wide);
    if (most > kMostUneven * static_cast<double>(ceil_div(outer * inner, cores))) continue;
    const double row = of_outer / static_cast<double>(outer) * static_cast<double>(across);
    const double column = of_inner / static_cast<double>(inner) * static_cast<double>(along);
    const double bytes = of_outer * (row + column <= room ? 1 : static_cast<double>(wide)) +
                         of_inner * (row + of_inner <= room ? 1 : static_cast<double>(high));
    const double seconds = std::max(most * multiply, bytes / rate);
    if (best.outer > 0 && seconds >= least) continue;
    best = {across, along};
    least = seconds;
  }
  return best;
}

// Blocks are weighed from the largest down, and only those whose products, or whose operands' way
// to L1, would take less than the best so far: the latter grows as columns get fewer. Among those
// that memory makes equal, what the cores take decides.
ProductBlock choose_product_block(const ProductProblem& problem, const Target& target) {
  thread_local std::vector<Sizes::Size> of_rows, of_columns;
  const int64_t sums = target.l0c_bytes / kSumBytes;
  const bool one = target.largest_tiles;
  const int64_t least_rows = one ? target.matmul_rows : target.matmul_mr;
  const int64_t most_rows = one ? target.matmul_rows : sums / target.matmul_nr;
  const Sizes rows(target.matmul_mr, problem.m, most_rows, one, of_rows);
  const Sizes columns(target.matmul_nr, problem.n, sums / least_rows, one, of_columns);
  const auto cores = static_cast<double>(target.cores_of(KernelKind::cube));
  const auto depth = static_cast<double>(round_up(problem.k, target.matmul_mr));
  const double multiply =
      depth / (target.costs.multiply_adds * static_cast<double>(target.cores) / cores);
  const double load = depth * static_cast<double>(problem.element_bytes) / target.costs.shared_read;
  const double area = static_cast<double>(problem.batch * problem.m * problem.n) / cores;
  ProductBlock best;
  double least_work = 0;
  for (const Sizes::Size& r : rows.all) {
    for (const Sizes::Size& c : columns.all) {
      ProductBlock block{r.size, c.size};
      if (!fits(problem, target, block)) continue;
      if (best.rows > 0 && area * (r.inverse + c.inverse) * load >= best.seconds) break;
      const auto high = static_cast<double>(block.rows), wide = static_cast<double>(block.columns);
      const double waves =
          std::ceil(static_cast<double>(problem.batch) * r.blocks * c.blocks / cores);
      const double least = waves * std::max(high * wide * multiply, (high + wide) * load);
      if (best.rows > 0 && least >= best.seconds) continue;
      halve(target, block);
      if (!cut_depth(problem, target, block)) continue;
      ProductCost cost = cost_of(problem, target, block);
      for (const bool rows_outer : {false, true}) {
        block.rows_outer = rows_outer;
        if (rows_outer) cost.memory = memory_of(problem, target, block);
        block.seconds = cost.total();
        const bool equal = block.seconds == best.seconds && cost.work() < least_work;
        if (best.rows > 0 && block.seconds >= best.seconds && !equal) continue;
        best = block;
        least_work = cost.work();
      }
    }
  }
  return best;
}

}  // namespace dvm
