// Winograd's way to convolve by 3 x 3 taps: 4 x 4 results of a channel come from 6 x 6 pixels by 36
// multiplications instead of 144. Pixels of every channel are transformed along rows and along
// columns, by the values of a polynomial at 0, +-3/4, +-3/2 and infinity; for each of the 36 points
// the products over channels are one matrix product, by weights that were transformed when they
// were packed (transformed_weights.h); their sums are transformed back. Taps may be apart: squares
// are of the pixels that one tap after the other meets, and those of all phases lie between each
// other. Channels may be a group's. In volumes, slices that a window reaches count as further
// channels. Compiled per level: see simd.h.
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

// Squares of results along an axis, as kernels/transforms.h counts them.
struct Squares {
  int64_t apart, results;  // the latter: on the whole axis

  DVM_INLINE int64_t count() const { return transform_squares(results, apart); }
  DVM_INLINE int64_t first(int64_t square) const {
    return square / apart * apart * kResults + square % apart;
  }
  DVM_INLINE int64_t results_of(int64_t square) const {
    return lesser<int64_t>(kResults, ceil_div(results - first(square), apart));
  }
};

// Windows over whole rows of images or slices, in squares of 4 x 4.
class TransformedConvolution {
 public:
  using V = Full<float>;
  static constexpr int64_t L = kLanesOf<V>, NR = Product<InRuns<float>>::kColumns;
  // Blocks of 2 x 2 pixels: each window of a square holds a whole one.
  static constexpr int kBlock = 2, kBlocks = kPoints / kBlock, kStep = kResults / kBlock;
  static constexpr int kMostBlocks = (2 * kStep) * (2 * kStep);  // to a square of a group

  TransformedConvolution(const Product<InRuns<float>>& x, const float* images, const Window& window,
                         float* scratch, int64_t scratch_bytes)
      : x_(x),
        w_(window),
        images_(images),
        scratch_(scratch),
        image_row_(int64_t{window.width} * window.pixel),
        slices_(along_slices(window)),
        tap_slice_(int64_t{window.dilation_depth} * window.height * image_row_),
        tap_row_(window.dilation_height * image_row_),
        tap_column_(int64_t{window.dilation_width} * window.pixel),
        channels_(int64_t{window.kernel_depth} * window.channels),
        // An odd number of vectors from row to row: rows of a block share no sets.
        row_((ceil_div(channels_, L) | 1) * L),
        most_(scratch_bytes / int64_t{sizeof(float)} / (kPoints * kPoints) - 2 * L) {}

  // Of all windows from number `first` on; false: they are none that this does.
  bool multiply(int64_t first, int64_t count, int64_t columns) {
    const int64_t most = most_ / (row_ + NR + 1);
    if (first % w_.out_width != 0 || count % w_.out_width != 0 || most < 1) return false;
    const Squares across{w_.dilation_width, w_.out_width};
    for (int64_t done = 0; done < count;) {
      const Position at(w_, first + done);
      const int64_t rows = lesser((count - done) / w_.out_width, w_.out_height - at.y);
      const Squares down{w_.dilation_height, rows};
      const int64_t most_across = lesser(across.count(), most);
      const int64_t most_down = lesser(down.count(), greater<int64_t>(most / across.count(), 1));
      for (int64_t i = 0; i < down.count(); i += most_down) {
        for (int64_t j = 0; j < across.count(); j += most_across) {
          multiply_group(
              {at, slices_.inside(at.z), done, down, across, i, j,
               lesser(down.count() - i, most_down), lesser(across.count() - j, most_across)},
              columns);
        }
      }
      done += rows * w_.out_width;
    }
    return true;
  }

 private:
  // Squares that pass at a time, of the rows from `at` on, whose windows are number `window` and on
  // of all.
  struct Group {
    Position at;
    Taps slices;  // inside the volume
    int64_t window;
    Squares rows, columns;
    int64_t i, j;          // the first square
    int64_t down, across;  // squares

    int64_t squares() const { return down * across; }
    int64_t top(int64_t square) const { return rows.first(i + square); }
    int64_t left(int64_t square) const { return columns.first(j + square); }
    int64_t rows_of(int64_t square) const { return rows.results_of(i + square); }
    int64_t columns_of(int64_t square) const { return columns.results_of(j + square); }
  };

  // Blocks of pixels along an axis of a group. The last block of a square is the first one of the
  // next square of its phase, if the group has that.
  struct Blocks {
    int64_t apart;  // squares, from one to the next of its phase

    Blocks(const Squares& squares, int64_t count) : apart(lesser(squares.apart, count)) {}
    int64_t end(int64_t count) const { return 2 * (count + apart); }
    int64_t at(int64_t square, int64_t block) const {
      return kStep * square - square % apart + block * apart;
    }
  };

  void multiply_group(const Group& group, int64_t columns) {
    const int64_t squares = group.squares();
    factor_point_ = squares * row_ + L;
    sum_point_ = squares * NR + L;
    float* const factors = scratch_;
    float* const sums = scratch_ + kPoints * kPoints * factor_point_;
    squared_ = sums + kPoints * kPoints * sum_point_;
    uneven_ = reinterpret_cast<bool*>(squared_ + kMostBlocks * squares);
    if (group.slices.count() == 0) return multiply_taps(group, true, 0, columns);
    const int64_t uneven = transform_images(group, factors);
    if (uneven * 2 > squares) return multiply_taps(group, true, 0, columns);
    Product<InRuns<float>> x = x_;
    x.accumulate = false;
    x.stream = false;
    x.ending = {};
    x.a_row = row_;
    x.c_row = NR;
    x.k = group.slices.count() * w_.channels;
    const int64_t from = group.slices.begin * w_.channels;
    const int64_t taps = w_.taps() * w_.channels;  // the transformed weights lie behind these
    for (int64_t n = 0; n < columns; n += NR) {
      const int64_t count = lesser(columns - n, NR);
      const float* const panel = x_.b + n / NR * x_.b_panel + taps * NR;
      if (std::isnan(*panel)) {  // weights that are none to transform (transformed_weights.h)
        multiply_taps(group, true, n, count);
        continue;
      }
      for (int64_t point = 0; point < kPoints * kPoints; point++) {
        x.a = factors + point * factor_point_ + from;
        x.b = panel + (point * channels_ + from) * NR;
        x.c = sums + point * sum_point_;
        if (count > L)
          multiply_point<kPanelVectors>(x, squares);
        else
          multiply_point<1>(x, squares);
      }
      finish(group, sums, n, count);
      if (uneven > 0) multiply_taps(group, false, n, count);
    }
  }

  // By the first vectors of a panel.
  template <int Vectors>
  static void multiply_point(Product<InRuns<float>>& x, int64_t squares) {
    const EvenRows blocks(squares, Vectors == kPanelVectors ? kMaxRows : kHalfPanelRows);
    const Block<InRuns<float>> whole = block_of<InRuns<float>, Vectors, false>(blocks.step);
    const Block<InRuns<float>> last = block_of<InRuns<float>, Vectors, false>(blocks.last);
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
    const int64_t slice = group.at.image * w_.depth + slices_.place(group.at.z, 0);
    const float* const image = images_ + slice * w_.height * image_row_;
    const Blocks down(group.rows, group.down), across(group.columns, group.across);
    const int64_t block_row = across.end(group.across);
    int64_t uneven = 0;
    for (int64_t i = 0; i < group.down; i++) {
      for (int64_t j = 0; j < group.across; j++, factors += row_) {
        const int64_t y = group.at.y + group.top(i) - w_.pad_top;
        const int64_t x = group.left(j) - w_.pad_left;
        const bool inside = inside_image(y, x, kPoints - 1);
        const float* const corner = image + y * image_row_ + x * w_.pixel;
        float* const squared = squared_ + down.at(i, 0) * block_row + across.at(j, 0);
        const Steps blocks{down.apart * block_row, across.apart};
        const bool above = i >= down.apart, before = j >= across.apart;
        if (inside) {
          square_blocks<true>(group.slices, corner, y, x, squared, blocks, above, before);
          transform_square<true>(group.slices, corner, y, x, factors);
        } else {
          square_blocks<false>(group.slices, corner, y, x, squared, blocks, above, before);
          transform_square<false>(group.slices, corner, y, x, factors);
        }
        const bool even = is_even(squared, blocks, group.rows_of(i), group.columns_of(j));
        uneven_[i * group.across + j] = !even;
        uneven += !even;
      }
    }
    return uneven;
  }

  // Of a pixel, and the one so many taps further along both axes.
  DVM_INLINE bool inside_image(int64_t y, int64_t x, int64_t taps) const {
    return y >= 0 && x >= 0 && y + taps * w_.dilation_height < w_.height &&
           x + taps * w_.dilation_width < w_.width;
  }

  // Pixel (i, j) of the square, or block, whose first one is (y, x) and lies at `corner`; 0 outside
  // of the image. Partial: the first `lanes` channels.
  template <bool Inside, bool Partial>
  DVM_INLINE V pixel(const float* corner, int64_t y, int64_t x, int64_t i, int64_t j,
                     int64_t lanes) const {
    const int64_t row = y + i * w_.dilation_height, column = x + j * w_.dilation_width;
    if (!Inside && (row < 0 || row >= w_.height || column < 0 || column >= w_.width)) return V{};
    const float* const at = corner + i * tap_row_ + j * tap_column_;
    if constexpr (Partial) return load_partial<V>(at, lanes);
    return load<V>(at);
  }

  // Calls `take` for each vector of channels of the slices: where it lies behind a pixel of the
  // first slice, the first one's number among all, whether it is partial, and how many there are.
  template <class Take>
  DVM_INLINE void for_each_vector(const Taps& slices, Take take) const {
    for (int64_t slice = slices.begin; slice < slices.end; slice++) {
      const int64_t at = slice * tap_slice_, number = slice * w_.channels;
      int64_t c = 0;
      for (; c + L <= w_.channels; c += L) take(at + c, number + c, std::false_type{}, L);
      if (c < w_.channels) take(at + c, number + c, std::true_type{}, w_.channels - c);
    }
  }

  // Six rows of six pixels.
  template <bool Inside>
  void transform_square(const Taps& slices, const float* corner, int64_t y, int64_t x,
                        float* factors) const {
    for_each_vector(
        slices, [&](int64_t at, int64_t c, auto partial, int64_t lanes) DVM_LAMBDA_INLINE {
          V rows[kPoints][kPoints];
#pragma GCC unroll 6
          for (int i = 0; i < kPoints; i++) {
            V pixels[kPoints];
#pragma GCC unroll 6
            for (int j = 0; j < kPoints; j++)
              pixels[j] = pixel<Inside, decltype(partial)::value>(corner + at, y, x, i, j, lanes);
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
        });
  }

  struct Steps {
    int64_t down, across;
  };

  // Of blocks of a square's pixels, the sums of squares, but of those in its first rows or columns
  // that a neighbour has them of.
  template <bool Inside>
  void square_blocks(const Taps& slices, const float* corner, int64_t top, int64_t left,
                     float* squared, const Steps& blocks, int64_t above, int64_t before) const {
    for (int64_t i = above; i < kBlocks; i++) {
      for (int64_t j = before; j < kBlocks; j++) {
        const int64_t y = top + i * kBlock * w_.dilation_height;
        const int64_t x = left + j * kBlock * w_.dilation_width;
        const bool inside = Inside || inside_image(y, x, kBlock - 1);
        const float* const pixels = corner + i * kBlock * tap_row_ + j * kBlock * tap_column_;
        squared[i * blocks.down + j * blocks.across] =
            inside ? square_block<true>(slices, pixels, y, x)
                   : square_block<false>(slices, pixels, y, x);
      }
    }
  }

  template <bool Inside>
  float square_block(const Taps& slices, const float* corner, int64_t y, int64_t x) const {
    V sums[kBlock][kBlock] = {};
    for_each_vector(
        slices, [&](int64_t at, int64_t, auto partial, int64_t lanes) DVM_LAMBDA_INLINE {
#pragma GCC unroll 2
          for (int i = 0; i < kBlock; i++) {
#pragma GCC unroll 2
            for (int j = 0; j < kBlock; j++) {
              const V of = pixel<Inside, decltype(partial)::value>(corner + at, y, x, i, j, lanes);
              sums[i][j] += of * of;
            }
          }
        });
    const auto four = fold_halves((sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]));
    return (four[0] + four[1]) + (four[2] + four[3]);
  }

  // Every window that results are of holds a block of pixels, and is as large at least.
  static bool is_even(const float* squared, const Steps& blocks, int64_t rows, int64_t columns) {
    float all = 0, least = kInfinite<float>;
    for (int64_t i = 0; i < kBlocks; i++) {
      for (int64_t j = 0; j < kBlocks; j++) {
        const float block = squared[i * blocks.down + j * blocks.across];
        all += block;
        if (i <= rows / kBlock && j <= columns / kBlock) least = lesser(least, block);
      }
    }
    return all <= kMostOfWindow * least && all < kInfinite<float>;
  }

  // The results of columns [n, n + count).
  void finish(const Group& group, const float* sums, int64_t n, int64_t count) const {
    const auto ending = x_.ending;
    const bool streams = x_.stream && count == NR &&
                         reinterpret_cast<uintptr_t>(x_.c + n) % kLineBytes == 0 &&
                         x_.c_row * int64_t{sizeof(float)} % kLineBytes == 0;
    const int64_t next_row = int64_t{w_.dilation_height} * w_.out_width;
    for (int64_t i = 0; i < group.down; i++) {
      const int64_t rows = group.rows_of(i);
      for (int64_t j = 0; j < group.across; j++, sums += NR) {
        if (uneven_[i * group.across + j]) continue;
        const int64_t columns = group.columns_of(j);
        const int64_t window = group.window + group.top(i) * w_.out_width + group.left(j);
        for (int64_t v = 0; v < count; v += L) {
          const int64_t lanes = lesser(count - v, L);
          V results[kResults][kResults];
          transform_back(sums + v, results);
          for (int64_t r = 0; r < rows; r++) {
            for (int64_t s = 0; s < columns; s++) {
              const int64_t at = window + r * next_row + s * w_.dilation_width;
              V result = results[r][s];
              if (x_.accumulate)
                result += load_partial<V>(x_.from + at * x_.from_row + n + v, lanes);
              result = ending.end(result);
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

  // The results of columns [n, n + columns) from the taps, of all squares or of those that are
  // uneven; those that follow each other in a row together.
  void multiply_taps(const Group& group, bool all, int64_t n, int64_t columns) const {
    const int64_t apart = group.columns.apart;
    for (int64_t i = 0; i < group.down; i++) {
      const bool* const uneven = uneven_ + i * group.across;
      for (int64_t phase = 0; phase < lesser(apart, group.across); phase++) {
        for (int64_t j = phase, end; j < group.across; j = end + apart) {
          for (end = j; end < group.across && (all || uneven[end]); end += apart) {
          }
          if (end == j) continue;
          const int64_t squares = (end - j) / apart - 1;
          const int64_t windows = squares * kResults + group.columns_of(end - apart);
          for (int64_t row = 0; row < group.rows_of(i); row++) {
            const int64_t y = group.top(i) + row * w_.dilation_height;
            multiply_row(group, y, group.left(j), windows, n, columns);
          }
        }
      }
    }
  }

  // Windows of a row that are a tap apart, as those of an image one row high.
  void multiply_row(const Group& group, int64_t y, int64_t left, int64_t windows, int64_t n,
                    int64_t columns) const {
    Window w = w_;
    w.out_depth = w.out_height = 1;
    w.out_width = static_cast<int32_t>(windows);
    w.stride_width = w.dilation_width;
    w.pad_front -= static_cast<int32_t>(group.at.z * w.stride_depth);
    w.pad_top -= static_cast<int32_t>(group.at.y + y);
    w.pad_left -= static_cast<int32_t>(left);
    const int64_t window = group.window + y * w_.out_width + left;
    Product<InRuns<float>> x = x_;
    x.b += n / NR * x.b_panel;
    x.c += window * x.c_row + n;
    x.c_row *= w.stride_width;
    x.from += window * x.from_row + n;
    x.from_row *= w.stride_width;
    const float* const image = images_ + group.at.image * w_.depth * w_.height * image_row_;
    Convolution<float>(x, image, w, 0, windows).multiply(columns);
  }

  const Product<InRuns<float>> x_;
  const Window w_;
  const float* const images_;
  float* const scratch_;
  const int64_t image_row_;
  const Along slices_;
  const int64_t tap_slice_, tap_row_, tap_column_;
  const int64_t channels_;  // of all slices
  const int64_t row_, most_;
  int64_t factor_point_ = 0, sum_point_ = 0;  // elements from point to point
  float* squared_ = nullptr;                  // of each block of pixels
  bool* uneven_ = nullptr;                    // of each square
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
