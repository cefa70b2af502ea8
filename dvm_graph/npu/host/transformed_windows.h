// Winograd's way to convolve by 3 x 3 taps side by side: 4 x 4 results of a channel come from 6 x 6
// pixels by 36 multiplications instead of 144. Pixels of every channel are transformed along rows
// and along columns, by the values of a polynomial at 0, +-3/4, +-3/2 and infinity; for each of the
// 36 points the products over channels are one matrix product, by weights that were transformed
// when they were packed (transformed_weights.h); their sums are transformed back. Compiled per
// level: see simd.h.
//
// Points of transformed pixels are differences of pixels, so rounding errors of a square's results
// are some of its largest pixels. Where those of some window may be small beside them, or any is no
// number, the square's results are computed from the taps themselves.
#pragma once

#include <cmath>

#include "npu/host/transforms.h"
#include "npu/host/window_products.h"

namespace dvm::DVM_LEVEL {
namespace {

// A square's sum of squared pixels over that of any of its windows, at most: of even pixels it
// is 4.
constexpr float kMostOfWindow = 256;

// Windows over whole rows of one image, or several images, in squares of 4 x 4.
class TransformedConvolution {
 public:
  using V = Full<float>;
  static constexpr int64_t L = kLanesOf<V>, NR = Product<InRuns<float>>::kColumns;
  // Blocks of 2 x 2 pixels: each window of a square holds a whole one.
  static constexpr int kBlock = 2, kBlocks = kPoints / kBlock, kStep = kResults / kBlock;

  TransformedConvolution(const Product<InRuns<float>>& x, const float* images, const Window& window,
                         float* scratch, int64_t scratch_bytes)
      : x_(x),
        w_(window),
        images_(images),
        scratch_(scratch),
        image_row_(int64_t{window.width} * window.pixel),
        // An odd number of lines from row to row: rows of a block share no sets.
        row_(window.channels / L % 2 == 0 ? window.channels + L : window.channels),
        most_(scratch_bytes / int64_t{sizeof(float)} / (kPoints * kPoints) - 2 * L) {}

  // Of all windows from number `first` on; false: they are none that this does.
  bool multiply(int64_t first, int64_t count, int64_t columns) {
    const int64_t across = ceil_div(w_.out_width, kResults), most = most_ / (row_ + NR + 1);
    if (first % w_.out_width != 0 || count % w_.out_width != 0 || w_.channels % L != 0 || most < 1)
      return false;
    Group group;
    group.across = lesser(across, most);
    group.down = lesser(greater<int64_t>(most / across, 1), ceil_div(w_.out_height, kResults));
    for (int64_t done = 0; done < count;) {
      const Position at(w_, first + done);
      const int64_t rows = lesser((count - done) / w_.out_width,
                                  lesser(w_.out_height - at.y, group.down * kResults));
      for (int64_t x = 0; x < across; x += group.across) {
        Group part = group;
        part.image = images_ + at.image * w_.height * image_row_;
        part.y = at.y;
        part.x = x * kResults;
        part.rows = rows;
        part.down = ceil_div(rows, kResults);
        part.across = lesser(across - x, group.across);
        part.columns = lesser(part.across * kResults, w_.out_width - part.x);
        part.window = done + part.x;
        multiply_group(part, first, columns);
      }
      done += rows * w_.out_width;
    }
    return true;
  }

 private:
  // Squares of results that pass at a time, `window` windows behind the first of all.
  struct Group {
    const float* image = nullptr;
    int64_t y = 0, x = 0, rows = 0, columns = 0;  // of results
    int64_t down = 0, across = 0;                 // squares
    int64_t window = 0;

    int64_t squares() const { return down * across; }
    int64_t rows_of(int64_t i) const { return lesser<int64_t>(kResults, rows - i * kResults); }
    int64_t columns_of(int64_t j) const {
      return lesser<int64_t>(kResults, columns - j * kResults);
    }
  };

  void multiply_group(const Group& group, int64_t first, int64_t columns) {
    const int64_t squares = group.squares();
    factor_point_ = squares * row_ + L;
    sum_point_ = squares * NR + L;
    float* const factors = scratch_;
    float* const sums = scratch_ + kPoints * kPoints * factor_point_;
    squared_ = sums + kPoints * kPoints * sum_point_;
    uneven_ = reinterpret_cast<bool*>(squared_ + kBlocks * kBlocks * squares);
    const int64_t uneven = transform_images(group, factors);
    if (uneven * 2 > squares) return multiply_taps(group, first, 0, columns);
    Product<InRuns<float>> x = x_;
    x.accumulate = false;
    x.stream = false;
    x.low = -kInfinite<float>;
    x.high = kInfinite<float>;
    x.a_row = row_;
    x.c_row = NR;
    x.k = w_.channels;
    const int64_t taps = w_.taps() * w_.channels;  // the transformed weights lie behind these
    const EvenRows blocks(squares, kMaxRows);
    for (int64_t n = 0; n < columns; n += NR) {
      const int64_t count = lesser(columns - n, NR);
      const float* const panel = x_.b + n / NR * x_.b_panel + taps * NR;
      if (std::isnan(*panel)) {  // weights that are none to transform (transformed_weights.h)
        multiply_taps(group, first, n, count);
        continue;
      }
      for (int64_t point = 0; point < kPoints * kPoints; point++) {
        x.a = factors + point * factor_point_;
        x.b = panel + point * w_.channels * NR;
        x.c = sums + point * sum_point_;
        multiply_point(x, blocks);
      }
      finish(group, sums, n, count);
      if (uneven > 0) multiply_uneven(group, first, n, count);
    }
  }

  static void multiply_point(Product<InRuns<float>>& x, const EvenRows& blocks) {
    const Block<InRuns<float>> whole = block_of<InRuns<float>, kPanelVectors, false>(blocks.step);
    const Block<InRuns<float>> last = block_of<InRuns<float>, kPanelVectors, false>(blocks.last);
    const int64_t bursts = ceil_div(x.k, kAheadSteps);
    x.ahead.rows = 1;
    x.ahead.with_a = false;
    x.ahead.stride = x.ahead.row_bytes =
        ceil_div(x.k * x.kStepBytes, blocks.count * bursts * kLineBytes) * kLineBytes;
    x.ahead.at = reinterpret_cast<const char*>(x.b + x.k * NR);
    for (int64_t m = 0; m < blocks.rows; m += blocks.step) {
      (m + blocks.step <= blocks.rows ? whole : last)(x, 0);
      x.a += blocks.step * x.a_row;
      x.c += blocks.step * x.c_row;
      x.ahead.at += bursts * x.ahead.stride;
    }
  }

  // How many squares are uneven: some window may be too small beside the whole.
  int64_t transform_images(const Group& group, float* factors) const {
    int64_t uneven = 0;
    for (int64_t i = 0; i < group.down; i++) {
      for (int64_t j = 0; j < group.across; j++, factors += row_) {
        const int64_t y = group.y + i * kResults - w_.pad_top;
        const int64_t x = group.x + j * kResults - w_.pad_left;
        const bool inside = y >= 0 && x >= 0 && y + kPoints <= w_.height && x + kPoints <= w_.width;
        const float* const corner = group.image + y * image_row_ + x * w_.pixel;
        const int64_t block_row = group.across * kStep + 1;
        float* const squared = squared_ + (i * block_row + j) * kStep;
        if (inside) {
          square_blocks<true>(corner, y, x, squared, block_row, i > 0, j > 0);
          transform_square<true>(corner, y, x, factors);
        } else {
          square_blocks<false>(corner, y, x, squared, block_row, i > 0, j > 0);
          transform_square<false>(corner, y, x, factors);
        }
        const bool even = is_even(squared, block_row, group.rows_of(i), group.columns_of(j));
        uneven_[i * group.across + j] = !even;
        uneven += !even;
      }
    }
    return uneven;
  }

  // Six rows of six pixels, of which those outside of the image are 0.
  template <bool Inside>
  void transform_square(const float* corner, int64_t y, int64_t x, float* factors) const {
    for (int64_t c = 0; c < w_.channels; c += L) {
      V rows[kPoints][kPoints];
#pragma GCC unroll 6
      for (int i = 0; i < kPoints; i++) {
        V pixels[kPoints];
#pragma GCC unroll 6
        for (int j = 0; j < kPoints; j++) {
          const bool there =
              Inside || (y + i >= 0 && y + i < w_.height && x + j >= 0 && x + j < w_.width);
          pixels[j] = there ? load<V>(corner + i * image_row_ + j * w_.pixel + c) : V{};
        }
        transform_pixels(pixels, rows[i]);
      }
#pragma GCC unroll 6
      for (int j = 0; j < kPoints; j++) {
        V column[kPoints], out[kPoints];
#pragma GCC unroll 6
        for (int i = 0; i < kPoints; i++) column[i] = rows[i][j];
        transform_pixels(column, out);
#pragma GCC unroll 6
        for (int i = 0; i < kPoints; i++)
          store(factors + (i * kPoints + j) * factor_point_ + c, out[i]);
      }
    }
  }

  // Of blocks of a square's pixels, the sums of squares, but of those in its first rows or columns
  // that a neighbour has them of.
  template <bool Inside>
  void square_blocks(const float* corner, int64_t top, int64_t left, float* squared, int64_t row,
                     int64_t above, int64_t before) const {
    for (int64_t i = above; i < kBlocks; i++) {
      for (int64_t j = before; j < kBlocks; j++) {
        const int64_t y = top + i * kBlock, x = left + j * kBlock;
        const bool inside =
            Inside || (y >= 0 && x >= 0 && y + kBlock <= w_.height && x + kBlock <= w_.width);
        const float* const pixels = corner + i * kBlock * image_row_ + j * kBlock * w_.pixel;
        squared[i * row + j] =
            inside ? square_block<true>(pixels, y, x) : square_block<false>(pixels, y, x);
      }
    }
  }

  template <bool Inside>
  float square_block(const float* corner, int64_t y, int64_t x) const {
    V sums[kBlock][kBlock] = {};
    for (int64_t c = 0; c < w_.channels; c += L) {
#pragma GCC unroll 2
      for (int i = 0; i < kBlock; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < kBlock; j++) {
          const bool there =
              Inside || (y + i >= 0 && y + i < w_.height && x + j >= 0 && x + j < w_.width);
          const V pixel = there ? load<V>(corner + i * image_row_ + j * w_.pixel + c) : V{};
          sums[i][j] += pixel * pixel;
        }
      }
    }
    const auto four = fold_halves((sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]));
    return (four[0] + four[1]) + (four[2] + four[3]);
  }

  // Every window that results are of holds a block of pixels, and is as large at least.
  static bool is_even(const float* squared, int64_t row, int64_t rows, int64_t columns) {
    float all = 0, least = kInfinite<float>;
    for (int64_t i = 0; i < kBlocks; i++) {
      for (int64_t j = 0; j < kBlocks; j++) {
        const float block = squared[i * row + j];
        all += block;
        if (i <= rows / kBlock && j <= columns / kBlock) least = lesser(least, block);
      }
    }
    return all <= kMostOfWindow * least && all < kInfinite<float>;
  }

  // The results of columns [n, n + count).
  void finish(const Group& group, const float* sums, int64_t n, int64_t count) const {
    const V low = splat<V>(x_.low), high = splat<V>(x_.high);
    const bool streams = x_.stream && count == NR &&
                         reinterpret_cast<uintptr_t>(x_.c + n) % kLineBytes == 0 &&
                         x_.c_row * int64_t{sizeof(float)} % kLineBytes == 0;
    for (int64_t i = 0; i < group.down; i++) {
      const int64_t rows = group.rows_of(i);
      for (int64_t j = 0; j < group.across; j++, sums += NR) {
        if (uneven_[i * group.across + j]) continue;
        const int64_t columns = group.columns_of(j);
        const int64_t window = group.window + i * kResults * w_.out_width + j * kResults;
        for (int64_t v = 0; v < count; v += L) {
          const int64_t lanes = lesser(count - v, L);
          V results[kResults][kResults];
          transform_back(sums + v, results);
          for (int64_t r = 0; r < rows; r++) {
            for (int64_t s = 0; s < columns; s++) {
              const int64_t at = window + r * w_.out_width + s;
              V result = results[r][s];
              if (x_.accumulate)
                result += load_partial<V>(x_.from + at * x_.from_row + n + v, lanes);
              result = lesser_lanes(high, greater_lanes(low, result));  // NaN passes
              float* const to = x_.c + at * x_.c_row + n + v;
              if (streams)
                store_stream(to, result);
              else
                store_partial(to, result, lanes);
            }
          }
        }
      }
    }
  }

  void transform_back(const float* sums, V (&results)[kResults][kResults]) const {
    V rows[kResults][kPoints];
#pragma GCC unroll 6
    for (int j = 0; j < kPoints; j++) {
      V column[kPoints], out[kResults];
#pragma GCC unroll 6
      for (int i = 0; i < kPoints; i++) column[i] = load<V>(sums + (i * kPoints + j) * sum_point_);
      transform_sums(column, out);
#pragma GCC unroll 4
      for (int i = 0; i < kResults; i++) rows[i][j] = out[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < kResults; i++) transform_sums(rows[i], results[i]);
  }

  // Neighbours in a row together.
  void multiply_uneven(const Group& group, int64_t first, int64_t n, int64_t columns) const {
    for (int64_t i = 0; i < group.down; i++) {
      const bool* const uneven = uneven_ + i * group.across;
      for (int64_t j = 0, end; j < group.across; j = end + 1) {
        for (end = j; end < group.across && uneven[end]; end++) {
        }
        if (end == j) continue;
        Group part = group;
        part.rows = group.rows_of(i);
        part.columns = lesser(end * kResults, group.columns) - j * kResults;
        part.window += i * kResults * w_.out_width + j * kResults;
        multiply_taps(part, first, n, columns);
      }
    }
  }

  // The results of columns [n, n + columns), row by row, from the taps.
  void multiply_taps(const Group& group, int64_t first, int64_t n, int64_t columns) const {
    for (int64_t row = 0; row < group.rows; row++) {
      const int64_t window = group.window + row * w_.out_width;
      Product<InRuns<float>> x = x_;
      x.b += n / NR * x.b_panel;
      x.c += window * x.c_row + n;
      x.from += window * x.from_row + n;
      Convolution<float>(x, images_, w_, first + window, group.columns).multiply(columns);
    }
  }

  const Product<InRuns<float>> x_;
  const Window w_;
  const float* const images_;
  float* const scratch_;
  const int64_t image_row_, row_, most_;
  int64_t factor_point_ = 0, sum_point_ = 0;  // elements from point to point
  float* squared_ = nullptr;                  // of each block of pixels
  bool* uneven_ = nullptr;                    // of each square
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
