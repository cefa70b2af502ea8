#include "vm/window_tiles.h"

#include <algorithm>
#include <cmath>

#include "kernels/numbers.h"
#include "kernels/transforms.h"
#include "vm/block_cost.h"
#include "vm/core.h"

namespace dvm {
namespace {

// Windows along one axis of an image.
struct Positions {
  int64_t count, whole;  // all, and those with all their taps inside the image
  double inside;         // of the taps of all, the part that is
};

Positions positions_of(int64_t windows, int64_t stride, int64_t pad, int64_t dilation,
                       int64_t extent, int64_t kernel) {
  // The windows whose tap at this place of the kernel is inside.
  const auto first = [&](int64_t tap) {
    const int64_t before = pad - tap * dilation;
    return before <= 0 ? 0 : std::min(ceil_div(before, stride), windows);
  };
  const auto end = [&](int64_t tap) {
    const int64_t behind = extent + pad - tap * dilation;
    return behind <= 0 ? 0 : std::min(ceil_div(behind, stride), windows);
  };
  int64_t taps = 0;
  for (int64_t tap = 0; tap < kernel; ++tap) taps += std::max<int64_t>(end(tap) - first(tap), 0);
  const int64_t whole = std::max<int64_t>(end(kernel - 1) - first(0), 0);
  return {windows, whole, static_cast<double>(taps) / static_cast<double>(windows * kernel)};
}

// Whole output rows, or a part of one.
struct Cut {
  int64_t rows, columns;

  int64_t windows() const { return rows * columns; }
};

// Of all tiles on the core that is done last: what multiply-adds, packing and register blocks take.
class WindowCosts {
 public:
  WindowCosts(const Window& window, const BlockProblem& problem, const BlockShape& shape,
              const Target& target)
      : window_(window),
        problem_(problem),
        terms_(target),
        cores_(target.cores),
        local_bytes_(target.local_bytes),
        register_rows_(
            std::max<int64_t>(1, problem.columns_b ? target.dot_rows : target.matmul_mr)),
        lanes_(std::max<int64_t>(1, target.vector_bytes / problem.element_bytes)),
        panels_(ceil_div(shape.columns, problem.columns_per_panel)),
        width_(multiplied_columns(std::min(shape.columns, problem.n))),
        n_blocks_(ceil_div(problem.n, shape.columns)),
        packs_once_(shape.keep_a),
        slices_(positions_of(window.out_depth, window.stride_depth, window.pad_front,
                             window.dilation_depth, window.depth, window.kernel_depth)),
        rows_(positions_of(window.out_height, window.stride_height, window.pad_top,
                           window.dilation_height, window.height, window.kernel_height)),
        columns_(positions_of(window.out_width, window.stride_width, window.pad_left,
                              window.dilation_width, window.width, window.kernel_width)) {}

  // Each piece of k brings B in once and reads it again for every register block; each further
  // piece reads and writes C once more.
  double patches(int64_t rows, int64_t pieces) const {
    const double packed = static_cast<double>(rows * problem_.k) * terms_.pack_rows;
    const double c = static_cast<double>(rows * (pieces - 1)) * columns() * 2 * terms_.passing;
    const int64_t blocks = ceil_div(rows, register_rows_);
    const double once = packs_once_ ? packed / static_cast<double>(n_blocks_) : packed;
    const double starts = static_cast<double>(pieces) * terms_.block_start;
    const double k = multiplied(problem_.k, 1);
    return tiles(rows) * (product(static_cast<double>(rows), blocks, starts, k) + once + c);
  }

  // Windows at the border are blocks of their own, along the rows of the tile.
  double in_place(const Cut& tile) const {
    const int64_t whole = columns_.whole * tile.columns / columns_.count;
    const int64_t border = tile.columns - whole;
    const int64_t blocks_down = ceil_div(tile.rows, register_rows_);
    const int64_t blocks = tile.rows * ceil_div(whole, register_rows_) + border * blocks_down;
    const double down = terms_.least_rows * static_cast<double>(blocks_down);
    const double windows =
        static_cast<double>(tile.rows * whole) +
        static_cast<double>(border) * std::max(static_cast<double>(tile.rows), down);
    const bool neighbours = window_.dilation_width == 1 && window_.pixel == window_.channels;
    const int64_t runs = window_.taps() / (neighbours ? window_.kernel_width : 1);
    const double starts = terms_.block_start + terms_.run_start * static_cast<double>(runs - 1);
    const double inside = slices_.inside * rows_.inside * columns_.inside;
    const double k = multiplied(problem_.k / runs, runs) * inside;
    return tiles(tile.windows()) * product(windows, blocks, starts, k);
  }

  // Squares of windows pass in groups, each by all points and panels.
  double transformed(const Cut& tile, int64_t columns) const {
    const int64_t across = transform_squares(tile.columns, window_.dilation_width);
    const int64_t squares = across * transform_squares(tile.rows, window_.dilation_height);
    const int64_t points = kTransformPoints * kTransformPoints;
    const int64_t width = multiplied_columns(columns);
    const int64_t panels = ceil_div(columns, problem_.columns_per_panel);
    const int64_t channels = int64_t{window_.kernel_depth} * window_.channels;
    const int64_t square_bytes =
        points * (channels + problem_.columns_per_panel) * problem_.element_bytes;
    const int64_t most = std::max<int64_t>(1, transform_bytes(local_bytes_) / square_bytes);
    const int64_t group = std::min(squares, std::max(most / across, int64_t{1}) * across);
    const int64_t groups = ceil_div(squares, std::min(group, most));
    const int64_t blocks = groups * ceil_div(ceil_div(squares, groups), register_rows_);
    const auto count = static_cast<double>(squares);
    const double b = static_cast<double>(groups) * terms_.far +
                     static_cast<double>(blocks - groups) * terms_.row_block;
    const double multiply = static_cast<double>(width * channels) * slices_.inside * (count + b) +
                            terms_.block_start * static_cast<double>(blocks * panels);
    const double transform =
        count * terms_.vector_operation *
        (kPixelOperations * slices_.inside *
             static_cast<double>(window_.kernel_depth * whole_vectors(window_.channels)) +
         kSumOperations * static_cast<double>(width));
    const double each = static_cast<double>(points) * (multiply + transform) + terms_.tile_start;
    return tiles(tile.windows(), ceil_div(problem_.n, columns)) * each;
  }

 private:
  // For each point of a square: transforming pixels, and the sums back. Six operations and five, of
  // which half as long is taken as behind a product: a square's values stay in registers.
  static constexpr double kPixelOperations = 3, kSumOperations = 2.5;

  double tiles(int64_t rows) const { return tiles(rows, n_blocks_); }
  double tiles(int64_t rows, int64_t n_blocks) const {
    const int64_t all = problem_.batch * ceil_div(problem_.m, rows) * n_blocks;
    return static_cast<double>(ceil_div(all, cores_)) + terms_.late_core;
  }
  int64_t whole_vectors(int64_t elements) const { return ceil_div(elements, lanes_) * lanes_; }
  // Of panels, but of the last one only the vectors that hold any.
  int64_t multiplied_columns(int64_t columns) const {
    const int64_t last = columns % problem_.columns_per_panel;
    return columns - last + whole_vectors(last);
  }
  double columns() const { return static_cast<double>(problem_.columns_b ? problem_.n : width_); }
  // Of k in so many runs: dot products take whole vectors of each.
  double multiplied(int64_t run, int64_t runs) const {
    return static_cast<double>(runs * (problem_.columns_b ? whole_vectors(run) : run));
  }
  // `starts`: what those of a block take; `k`: what is multiplied of it.
  double product(double rows, int64_t blocks, double starts, double k) const {
    const double b = terms_.far + static_cast<double>(blocks - 1) * terms_.row_block;
    return columns() * k * (rows + b) + starts * static_cast<double>(blocks * panels_) +
           terms_.tile_start;
  }

  const Window& window_;
  const BlockProblem& problem_;
  const CubeTerms terms_;
  const int64_t cores_, local_bytes_, register_rows_, lanes_, panels_, width_, n_blocks_;
  const bool packs_once_;
  const Positions slices_, rows_, columns_;
};

// Of an image, that the windows of a tile see.
int64_t pixels_seen(const Window& window, const Cut& tile) {
  const int64_t apart = (tile.rows - 1) * window.stride_height + 1;
  const int64_t together = apart + int64_t{window.kernel_height - 1} * window.dilation_height;
  const int64_t rows = std::min({together, apart * window.kernel_height, int64_t{window.height}});
  const int64_t columns = (tile.columns - 1) * window.stride_width + 1 +
                          int64_t{window.kernel_width - 1} * window.dilation_width;
  return std::min(window.kernel_depth, window.depth) * rows *
         std::min<int64_t>(columns, window.width);
}

}  // namespace

WindowTile choose_window_tile(const Window& window, const BlockProblem& problem,
                              const BlockShape& shape, bool transformed, const Target& target) {
  constexpr int64_t kLeastBlocks = 4;  // of registers, in a part of an output row
  const CubeTerms terms(target);
  const int64_t step = int64_t{window.stride_width} * window.pixel * problem.element_bytes;
  const int64_t register_rows = std::max<int64_t>(1, target.matmul_mr);
  const int64_t block = std::min<int64_t>(register_rows, window.out_width);
  const WindowCosts costs(window, problem, shape, target);
  const double patches =
      costs.patches(shape.rows, ceil_div(problem.k, std::max<int64_t>(1, shape.k_block)));
  WindowTile best;
  const auto fits = [&](const Cut& tile, int64_t columns) {
    const int64_t c = problem.local_c ? 2 * tile.windows() * columns : 0;
    const int64_t elements = pixels_seen(window, tile) * window.pixel + c;
    return elements * problem.element_bytes <= target.local_bytes / 2;
  };
  const auto consider = [&](double cost, const WindowTile& tile) {
    if (patches - cost <= best.saved) return;
    best = tile;
    best.saved = patches - cost;
  };
  if (rows_in_set(step, block, target) <= terms.room_in_set) {
    const auto in_place = [&](const Cut& tile) {
      if (fits(tile, shape.columns))
        consider(costs.in_place(tile), {tile.windows(), shape.columns, false});
    };
    for (int64_t rows = 1; rows <= window.out_height; rows = rows < 4 ? rows + 1 : rows * 3 / 2) {
      const int64_t even = ceil_div(window.out_height, ceil_div(window.out_height, rows));
      in_place({even, window.out_width});
    }
    for (int64_t parts = 2; parts * kLeastBlocks * register_rows <= window.out_width; parts *= 2)
      in_place({1, ceil_div(window.out_width, parts)});
  }
  if (!transformed || !has_transform(window)) return best;
  // Tiles of several images or slices are even parts of them; of one they may be whole squares and
  // the rest.
  const bool one_image = problem.m == int64_t{window.out_height} * window.out_width;
  const int64_t band = int64_t{window.dilation_height} * kTransformResults;
  const int64_t panels = ceil_div(problem.n, problem.columns_per_panel);
  const int64_t most_parts = problem.whole_rows ? 1 : std::min(panels, 2 * target.cores);
  for (int64_t rows = 1; rows <= window.out_height; ++rows) {
    const bool whole_squares = one_image && rows % band == 0;
    if (window.out_height % rows != 0 && !whole_squares) continue;
    const Cut tile{rows, window.out_width};
    for (int64_t parts = 1; parts <= most_parts; ++parts) {
      const int64_t share = ceil_div(panels, parts);
      const int64_t columns = std::min(share * problem.columns_per_panel, problem.n);
      const int64_t c = problem.local_c ? 2 * tile.windows() * columns : 0;
      if (c * problem.element_bytes > target.local_bytes / 2) continue;
      consider(costs.transformed(tile, columns), {tile.windows(), columns, true});
    }
  }
  return best;
}

}  // namespace dvm
