#include "vm/product_block.h"

#include <algorithm>
#include <vector>

#include "kernels/numbers.h"

namespace dvm {
namespace {

constexpr int64_t kMostSteps = 8;  // of a chunk: instructions of the body
constexpr int64_t kSumBytes = 4;
constexpr int64_t kPreferredBlocks = 8;  // of the cube unit, of rows, where the target says nothing
constexpr int32_t kMostCuts = 64;        // of the cores
constexpr double kMostPieces = 2;        // of a block, over those that there have to be
constexpr double kTie = 1 + 1e-9;        // as long, but for roundings
static_assert(kMostHalves == 2);

int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

double up(double number) {  // as std::ceil, which is a call on some machines
  const auto whole = static_cast<double>(static_cast<int64_t>(number));
  return whole + (whole < number ? 1.0 : 0.0);
}

// Rows or columns that are tried.
struct Size {
  int64_t size;
  int64_t half;  // of them, in multiples of the unit's block
  double blocks, inverse;
};

// The most, in multiples of the unit's block.
int64_t largest_size(int64_t unit, int64_t extent, int64_t most) {
  return std::min(round_up(extent, unit), std::max(unit, most / unit * unit));
}

// The longest first: all multiples of the unit's block above a least and up to a most of which none
// smaller gives as few blocks.
void list_sizes(int64_t unit, int64_t extent, int64_t least, int64_t most, std::vector<Size>& out) {
  out.clear();
  // In units: whole numbers that divide fast.
  const auto all = static_cast<int32_t>(std::min<int64_t>(ceil_div(extent, unit), INT32_MAX / 2));
  const auto end = static_cast<int32_t>(std::min<int64_t>(least / unit, all));
  for (auto size = static_cast<int32_t>(std::min<int64_t>(all, most / unit)); size > end;) {
    const int32_t blocks = (all + size - 1) / size;
    const int32_t even = (all + blocks - 1) / blocks;
    const int64_t length = even * unit, half = (even + 1) / 2 * unit;
    out.push_back({length, half, static_cast<double>(blocks), 1 / static_cast<double>(length)});
    size = even - 1;
  }
}

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

// Where L0C holds one block alone, and sums may leave while others are made. `half`: of its
// columns.
bool is_halved(const Target& t, int64_t rows, int64_t columns, int64_t half) {
  const bool one = t.places * rows * columns * kSumBytes > t.l0c_bytes;
  const bool two = kMostHalves * rows * half * kSumBytes <= t.l0c_bytes;
  return one & two & (half < columns);
}

ProductBlock block_of(int64_t rows, int64_t columns, bool halved, int64_t half) {
  ProductBlock block;
  block.rows = rows;
  block.columns = columns;
  block.halves = halved ? kMostHalves : 1;
  block.half = halved ? half : columns;
  return block;
}

bool fits(const ProductProblem& p, const Target& t, const ProductBlock& block) {
  if (block.rows * block.columns * kSumBytes > t.l0c_bytes) return false;
  if (p.from_ring) {
    const int64_t slot = block.rows * row_of_slot(p, t) * p.element_bytes;
    const int64_t slots = t.cores_of(KernelKind::cube) * kRowSlots;
    if (static_cast<double>(slots * slot) > kHeld * static_cast<double>(t.shared_bytes))
      return false;
  }
  return !p.bias || block.columns * kSumBytes <= t.bias_bytes;
}

// What a block takes.
struct ProductCost {
  double multiply = 0, load = 0, feed = 0;  // beside one another, or in turn
  bool in_turn = false;
  double fill = 0, drain = 0;  // before the first and behind the last of them
  double last = 0;             // behind the last block of all
  double waves = 0;            // blocks one after the other, at least

  double work(double blocks) const;  // of a core with so many
};

// What the cores do where each has a region of the blocks of C.
struct Arrangement {
  Regions regions;
  double blocks = 0;  // of the core with most of them
  double bytes = 0;   // of the operands, that come from memory
  double lines = 1;   // of blocks, of which the core has some
};

// Of one matrix product. The cores of one row of regions read the same blocks of one operand, those
// of one column the same of the other. What a step reads stays for the next one; what is walked
// again stays if the cache has room.
class Arrangements {
 public:
  Arrangements(const ProductProblem& p, const Target& t, const ProductBlock& block)
      : cores_(static_cast<int32_t>(t.cores_of(KernelKind::cube))),
        room_(static_cast<double>(t.shared_bytes)) {
    const int64_t rows = ceil_div(p.m, block.rows), columns = ceil_div(p.n, block.columns);
    const auto depth = static_cast<double>(p.k * p.element_bytes);
    outer_ = static_cast<int32_t>(block.rows_outer ? rows : columns);
    inner_ = static_cast<int32_t>(block.rows_outer ? columns : rows);
    of_outer_ = static_cast<double>(block.rows_outer ? p.m : p.n) * depth;
    of_inner_ = static_cast<double>(block.rows_outer ? p.n : p.m) * depth;
    const double left = p.left_bytes / static_cast<double>(p.element_bytes);
    outer_from_memory_ = of_outer_ * (block.rows_outer ? left : 1);
    inner_from_memory_ = of_inner_ * (block.rows_outer ? 1 : left);
    from_ring_ = p.from_ring;
    row_ = of_outer_ / outer_;
    column_ = of_inner_ / inner_;
  }

  // Lines of blocks, as many for each core. Where these are no whole lines, each core is at another
  // block of the inner operand.
  Arrangement lines() const {
    const int32_t each = up(outer_ * inner_, cores_);
    const bool whole = each % inner_ == 0;
    const int32_t lines = std::min(outer_, cores_), beside = whole ? 1 : std::min(inner_, cores_);
    const int32_t high = whole ? each / inner_ : from_ring_ ? up(each, inner_) + 1 : outer_;
    const int32_t copies = whole ? 1 : up(cores_ * high, outer_);
    return made({}, each, row_ * lines, column_ * beside, inner_, high, copies);
  }

  Arrangement cut(int32_t across, int32_t along) const {
    const int32_t high = up(outer_, across), wide = up(inner_, along);
    return made({across, along}, high * wide, row_ * across, column_ * along, wide, high, along);
  }

 private:
  static int32_t up(int32_t a, int32_t b) { return (a + b - 1) / b; }

  // `row` and `column`: what all cores are at together, of either operand; `wide` and `high`: how
  // often it comes where it does not stay. From a ring each of `copies` cores has rows of its own.
  Arrangement made(Regions regions, int32_t blocks, double row, double column, int32_t wide,
                   int32_t high, int32_t copies) const {
    const int32_t rows = from_ring_ ? copies : row + column <= room_ ? 1 : wide;
    return {regions, static_cast<double>(blocks),
            outer_from_memory_ * rows + inner_from_memory_ * (row + of_inner_ <= room_ ? 1 : high),
            static_cast<double>(high)};
  }

  const int32_t cores_;
  const double room_;
  int32_t outer_, inner_;
  double of_outer_, of_inner_, row_, column_;
  double outer_from_memory_, inner_from_memory_;
  bool from_ring_;
};

// Of a batch, whose matrices the cores share in lines of blocks: the operand of the inner loop
// comes again for every round of cores, unless the cache holds it.
Arrangement arrange_batch(const ProductProblem& p, const Target& t, const ProductBlock& block) {
  const int64_t cores = t.cores_of(KernelKind::cube);
  const double e = static_cast<double>(p.element_bytes);
  const double a = static_cast<double>(p.a_batch * p.m * p.k) * p.left_bytes;
  const double b = static_cast<double>(p.b_batch * p.k * p.n) * e;
  const int64_t rows = ceil_div(p.m, block.rows), columns = ceil_div(p.n, block.columns);
  const int64_t each = ceil_div(p.batch * rows * columns, cores);
  const int64_t lines = ceil_div(each, columns) + (each % columns == 0 ? 0 : 1);
  const double passes = std::max(
      1.0, static_cast<double>(block.rows_outer ? rows : columns) / static_cast<double>(cores));
  const double inner = block.rows_outer ? b : a, outer = block.rows_outer ? a : b;
  const bool held = inner <= static_cast<double>(t.shared_bytes) * kHeld;
  return {{},
          static_cast<double>(each),
          outer + inner * (held ? 1 : passes),
          static_cast<double>(lines)};
}

double ProductCost::work(double blocks) const {
  const double block = in_turn ? multiply + load + feed : std::max({multiply, load, feed});
  return blocks * (block + fill + drain) + last;
}

// Seconds until an element of C has left L0C.
double leaving(const ProductProblem& p, const Target& t, double share) {
  return static_cast<double>(p.result_bytes) /
         (p.to_ring ? t.costs.core_transfer : t.costs.memory_write * share);
}

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
  const double leave = rows * columns * leaving(p, t, share);
  // A half leaves while the other is multiplied by the last chunk, or by the first of the next
  // block.
  cost.drain = halves == 1 ? leave : std::max(0.0, leave - cost.multiply / chunks);
  cost.last = halves == 1 ? 0 : leave / halves;
  return cost;
}

// Blocks are weighed from the largest down, behind one of the preferred size, and only those whose
// products, or whose operands' way to L1, would take less than the best so far: the latter grows as
// columns get fewer. Among those that memory makes equal, what the cores take decides.
class Search {
 public:
  Search(const ProductProblem& problem, const Target& target)
      : problem_(problem),
        target_(target),
        cores_(static_cast<double>(target.cores_of(KernelKind::cube))) {
    const auto depth = static_cast<double>(round_up(problem.k, target.matmul_mr));
    const double share = static_cast<double>(target.cores) / cores_;
    multiply_ = depth / (target.costs.multiply_adds * share);
    load_ = depth * static_cast<double>(problem.element_bytes) / target.costs.shared_read;
    latency_ = target.costs.memory_latency;
    leave_ = leaving(problem, target, share);
    const double starts = static_cast<double>(problem.k * problem.element_bytes * target.places) *
                          target.costs.block_start;
    left_ = starts / static_cast<double>(target.l0a_bytes);
    right_ = starts / static_cast<double>(target.l0b_bytes);
    area_ = static_cast<double>(problem.batch * problem.m * problem.n) / cores_;
    const double a = static_cast<double>(problem.a_batch * problem.m * problem.k);
    const double b = static_cast<double>(problem.b_batch * problem.k * problem.n);
    const auto all = static_cast<double>(target.cores);  // that share memory
    read_ = 1 / (target.costs.memory_read * all);
    missed_ = std::max(0.0, read_ - 1 / (target.costs.shared_read * cores_));
    results_ = static_cast<double>(problem.batch * problem.m * problem.n * problem.result_bytes) /
               (target.costs.memory_write * all);
    const double bytes = a * problem.left_bytes + b * static_cast<double>(problem.element_bytes);
    least_ = bytes * read_ + results_;
    least_missed_ = bytes * missed_;
    for (int32_t across = 1; across <= kMostCuts && across <= target.cube_cores; ++across) {
      if (target.cube_cores % across == 0) cuts_[count_++] = across;
    }
  }

  ProductBlock run() {
    thread_local std::vector<Size> of_rows, of_columns;
    const int64_t sums = target_.l0c_bytes / kSumBytes;
    const int64_t preferred =
        target_.matmul_rows > 0 ? target_.matmul_rows : kPreferredBlocks * target_.matmul_mr;
    const int64_t rows = largest_size(target_.matmul_mr, problem_.m, preferred);
    const int64_t columns = largest_size(target_.matmul_nr, problem_.n, sums / preferred);
    if (target_.largest_tiles) {
      weigh(rows, columns);
      return best_;
    }
    weigh(even(problem_.m, rows, target_.matmul_mr), even(problem_.n, columns, target_.matmul_nr));
    // Of either, so that the way to L1 alone does not take as long.
    const auto least = best_.rows > 0
                           ? static_cast<int64_t>(area_ * load_ / (best_.seconds - least_missed_))
                           : int64_t{0};
    list_sizes(target_.matmul_mr, problem_.m, least, sums / std::max(least, target_.matmul_nr),
               of_rows);
    list_sizes(target_.matmul_nr, problem_.n, least, sums / std::max(least, target_.matmul_mr),
               of_columns);
    size_t first = of_columns.size();  // of those that fit beside the rows
    for (const Size& r : of_rows) {
      while (first > 0 && of_columns[first - 1].size * r.size <= sums) --first;
      for (size_t i = first; i < of_columns.size(); ++i) {
        const Size& c = of_columns[i];
        const double load = (r.inverse + c.inverse) * load_;
        if (best_.rows > 0 && !may_win(area_ * load + least_missed_)) break;
        const bool halved = is_halved(target_, r.size, c.size, c.half);
        if (best_.rows == 0 || promises(r, c, halved))
          weigh(block_of(r.size, c.size, halved, c.half));
      }
    }
    return best_;
  }

 private:
  // As many blocks, of about equal sizes.
  static int64_t even(int64_t extent, int64_t size, int64_t unit) {
    return round_up(ceil_div(extent, ceil_div(extent, size)), unit);
  }

  void weigh(int64_t rows, int64_t columns) {
    const int64_t half = round_up(ceil_div(columns, kMostHalves), target_.matmul_nr);
    weigh(block_of(rows, columns, is_halved(target_, rows, columns, half), half));
  }

  // From below, without what the cuts of k add.
  bool promises(const Size& r, const Size& c, bool halved) const {
    const auto high = static_cast<double>(r.size), wide = static_cast<double>(c.size);
    const double half = halved ? static_cast<double>(c.half) : wide;
    const double step = std::max(high * left_, half * right_);
    const double multiply = high * wide * multiply_ + (halved ? kMostHalves : 1) * step;
    const double leave = halved ? 0 : high * wide * leave_;
    const double each = up(static_cast<double>(problem_.batch) * (r.blocks * c.blocks) / cores_);
    const double load = (high + wide) * load_;
    return may_win(each * load + least_missed_) &&
           each * (std::max(multiply, load) + latency_ + leave) < best_.seconds;
  }

  void weigh(ProductBlock block) {
    if (!fits(problem_, target_, block)) return;
    if (!cut_depth(problem_, target_, block)) return;
    const ProductCost cost = cost_of(problem_, target_, block);
    if (!better(std::max(cost.work(cost.waves), least_), cost.work(cost.waves))) return;
    for (const bool rows_outer : {false, true}) {
      if (problem_.from_ring && !rows_outer) continue;
      block.rows_outer = rows_outer;
      if (problem_.piece_elements > 0 && !cuts_well(block)) continue;
      if (problem_.batch > 1) {
        weigh(block, cost, arrange_batch(problem_, target_, block));
        continue;
      }
      const Arrangements all(problem_, target_, block);
      weigh(block, cost, all.lines());
      for (int c = 0; c < count_; ++c) weigh(block, cost, all.cut(cuts_[c], cuts_[count_ - 1 - c]));
    }
  }

  void weigh(const ProductBlock& block, const ProductCost& cost, const Arrangement& arranged) {
    const double work = cost.work(arranged.blocks);
    const double moved = arranged.blocks * cost.load + arranged.bytes * missed_;
    double seconds = std::max({work, moved, arranged.bytes * read_ + results_});
    if (problem_.from_ring) {  // a line's rows beside the products of the one before
      const double rows =
          static_cast<double>(std::min(block.rows, problem_.m) * problem_.k) * problem_.row_seconds;
      seconds = std::max(seconds + rows, arranged.lines * rows + seconds / arranged.lines);
    }
    if (!better(seconds, work)) return;
    best_ = block;
    best_.regions = arranged.regions;
    best_.seconds = seconds;
    best_.work = work;
  }

  // Into not many more pieces than there have to be.
  bool cuts_well(const ProductBlock& block) const {
    const auto volume = static_cast<double>(block.rows * block.columns);
    const int64_t pieces = pieces_of(block, problem_.piece_elements, target_);
    return pieces > 0 &&
           static_cast<double>(pieces) <= kMostPieces * up(volume / problem_.piece_elements);
  }

  // What takes no less, where blocks that take as long may do less work.
  bool may_win(double least) const { return least <= best_.seconds * kTie; }

  bool better(double seconds, double work) const {
    return best_.rows == 0 || seconds < best_.seconds ||
           (seconds == best_.seconds && work < best_.work);
  }

  const ProductProblem& problem_;
  const Target& target_;
  const double cores_;
  double multiply_ = 0, load_ = 0;  // of an element of a block, and of a row or column
  double latency_ = 0;              // of a block
  double leave_ = 0;                // of an element of a block that is done in one part
  double left_ = 0, right_ = 0;     // of a row and of a column of one part: starts of steps
  double area_ = 0;                 // of a core
  double read_ = 0, results_ = 0;   // of a byte of operands, and of all of C
  double missed_ = 0;               // of a byte, over what it takes from the cache
  double least_ = 0;                // of memory
  double least_missed_ = 0;         // over what the cache takes for all operands
  int32_t cuts_[kMostCuts];         // that divide the cores, least first
  int count_ = 0;
  ProductBlock best_;
};

}  // namespace

int64_t pieces_of(const ProductBlock& block, double piece_elements, const Target& target,
                  int64_t least) {
  const int64_t units = block.rows_outer ? block.columns / target.matmul_nr : block.rows;
  const auto volume = static_cast<double>(block.rows * block.columns);
  int64_t pieces = std::max(least, static_cast<int64_t>(up(volume / piece_elements)));
  while (pieces <= units && units % pieces != 0) ++pieces;
  return pieces <= units ? pieces : 0;
}

ProductBlock choose_product_block(const ProductProblem& problem, const Target& target) {
  return Search(problem, target).run();
}

}  // namespace dvm
