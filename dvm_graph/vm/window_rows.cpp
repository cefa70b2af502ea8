#include "vm/window_rows.h"

#include <algorithm>
#include <cmath>

#include "kernels/numbers.h"
#include "vm/block_cost.h"

namespace dvm {
namespace {

constexpr int64_t kMostRows = 8;           // of a tile
constexpr int64_t kMostInstructions = 48;  // one for each row and segment

WindowRows describe(const Window& window, int64_t rows) {
  WindowRows out;
  out.rows = rows;
  out.windows = window.out_width;
  out.height = (rows - 1) * window.stride_height +
               int64_t{window.kernel_height - 1} * window.dilation_height + 1;
  out.width = int64_t{window.out_width - 1} * window.stride_width +
              int64_t{window.kernel_width - 1} * window.dilation_width + 1;
  const bool neighbours = window.dilation_width == 1;
  out.segments = neighbours ? window.kernel_height : window.taps();
  out.depth = (neighbours ? window.kernel_width : 1) * int64_t{window.channels};
  return out;
}

// Of all tiles on the core that has most of them: what packing and register blocks take beside the
// multiply-adds.
class RowCosts {
 public:
  RowCosts(const BlockProblem& problem, const BlockShape& shape, const Target& target)
      : problem_(problem),
        terms_(target),
        cores_(target.cores),
        register_rows_(std::max<int64_t>(1, target.matmul_mr)),
        panels_(ceil_div(shape.columns, problem.columns_per_panel)),
        n_blocks_(ceil_div(problem.n, shape.columns)),
        packs_once_(shape.keep_a) {}

  double patches(int64_t rows, int64_t pieces) const {
    const double packed = static_cast<double>(rows * problem_.k) * terms_.pack_rows;
    return tiles(rows) * (instructions(1, rows, pieces) + per_tile(packed));
  }

  double in_place(const WindowRows& x, int64_t channels) const {
    const double packed = static_cast<double>(x.pixels() * channels) * terms_.pack_rows;
    return tiles(x.rows * x.windows) *
           (instructions(x.rows, x.windows, x.segments) + per_tile(packed));
  }

 private:
  double tiles(int64_t rows) const {
    const int64_t all = problem_.batch * ceil_div(problem_.m, rows) * n_blocks_;
    return static_cast<double>(ceil_div(all, cores_));
  }
  double per_tile(double packed) const {
    return packs_once_ ? packed / static_cast<double>(n_blocks_) : packed;
  }
  // So many instructions for each piece of k. Each brings B in once and reads it again for every
  // register block; each further piece reads and writes C once more.
  double instructions(int64_t count, int64_t rows, int64_t pieces) const {
    const int64_t blocks = ceil_div(rows, register_rows_);
    const auto columns = static_cast<double>(panels_ * problem_.columns_per_panel);
    const auto k = static_cast<double>(problem_.k);
    const double b =
        columns * k * (terms_.far + static_cast<double>(blocks - 1) * terms_.row_block);
    const double c = static_cast<double>(rows * (pieces - 1)) * columns * 2 * terms_.passing;
    const double starts = static_cast<double>(blocks * panels_ * pieces) * terms_.block_start;
    return static_cast<double>(count) * (static_cast<double>(rows) * columns * k + b + c + starts) +
           terms_.tile_start;
  }

  const BlockProblem& problem_;
  const CubeTerms terms_;
  const int64_t cores_, register_rows_, panels_, n_blocks_;
  const bool packs_once_;
};

}  // namespace

WindowRows choose_window_rows(const Window& window, const BlockProblem& problem,
                              const BlockShape& shape, const Target& target) {
  const int64_t step = int64_t{window.stride_width} * window.channels * problem.element_bytes;
  if (shares_sets(step, target)) return {};
  if (window.pixel != window.channels) return {};  // a few channels of each pixel are slow to copy
  const RowCosts costs(problem, shape, target);
  WindowRows best;
  double least =
      costs.patches(shape.rows, ceil_div(problem.k, std::max<int64_t>(1, shape.k_block)));
  for (int64_t rows = 1; rows <= std::min<int64_t>(kMostRows, window.out_height); ++rows) {
    if (window.out_height % rows != 0) continue;
    const WindowRows choice = describe(window, rows);
    const int64_t bytes = choice.pixels() * window.channels * problem.element_bytes;
    if (bytes > target.local_bytes / 2 || rows * choice.segments > kMostInstructions) break;
    const double cost = costs.in_place(choice, window.channels);
    if (cost >= least) continue;
    least = cost;
    best = choice;
  }
  return best;
}

Window window_of_tiles(const Window& window, const WindowRows& rows) {
  Window all = window;
  all.kernel_height = static_cast<int32_t>(rows.height);
  all.kernel_width = static_cast<int32_t>(rows.width);
  all.dilation_height = all.dilation_width = all.stride_width = 1;
  all.stride_height = static_cast<int32_t>(rows.rows * window.stride_height);
  all.out_height = static_cast<int32_t>(window.out_height / rows.rows);
  all.out_width = 1;
  return all;
}

}  // namespace dvm
