// Depth-wise convolutions whose windows of a row overlap, over channels-last images.
//
// Windows one or two pixels apart see most pixels several times. A block of neighbouring windows
// stays in registers, and the columns that any of them sees pass once for each row of taps, beside
// the weights of that row: a read for each column instead of one for each tap of each window.
// Columns outside the image pass by, so that windows at the borders are in blocks like all others.
// Channels pass a vector at a time. Rows of a large image come from far: those that the next row of
// windows reads first are fetched meanwhile. Compiled per level: see simd.h.
#pragma once

#include "npu/host/rows.h"
#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int64_t kFarBytes = int64_t{1} << 20;  // of an image that does not stay in L2
// Sums of a block, with the weights of a row of taps, are registers.
#if defined(DVM_AVX512)
constexpr int kMostOverlapping = 8;
#else
constexpr int kMostOverlapping = 6;
#endif

// Neighbouring windows of an output row, at a vector of channels.
template <class T>
struct Overlapping {
  T* out;
  int64_t out_step;  // between windows
  const T* at;       // the first row of taps that is inside, from the image's first column on
  int64_t pixel, rows, row_step;
  const T* weights;  // of the first row inside; rows follow each other
  int64_t weight_step;
  int64_t left, width;  // the first window's first column, which may be outside, and the image's
  const T* later;       // the first row to fetch, from the first window's first column on
  int64_t later_rows, later_row_step;

  DVM_INLINE void fetch(int64_t y, int64_t c, int64_t columns) const {
    const T* from = later + y * later_row_step + c;
    for (int64_t x = 0; x < columns; x++, from += pixel)
      for (int64_t byte = 0; byte < kVectorBytes; byte += kLineBytes)
        __builtin_prefetch(from + byte / int64_t{sizeof(T)}, 0, 2);
  }

  // At the vector of channels from `c` on, of which `lanes` are there.
  template <int Taps, int Stride, int Windows, bool Inside, bool Partial>
  DVM_INLINE void multiply(int64_t c, int64_t lanes) const {
    using V = Full<T>;
    constexpr int kColumns = (Windows - 1) * Stride + Taps;
    const int64_t begin = -left, end = width - left;
    V sum[Windows] = {};
    const T* row = at + left * pixel + c;
    const T* of_row = weights + c;
    for (int64_t y = 0; y < rows; y++, row += row_step) {
      if (y < later_rows) fetch(y, c, Windows * Stride);
      V weight[Taps];
#pragma GCC unroll 8
      for (int t = 0; t < Taps; t++, of_row += weight_step)
        weight[t] = load_some<V, Partial>(of_row, lanes);
      const T* column = row;
#pragma GCC unroll 32
      for (int x = 0; x < kColumns; x++, column += pixel) {
        asm("" : "+r"(column));  // no register for each multiple of the step
        if (!Inside && (x < begin || x >= end)) continue;
        const V pixels = load_some<V, Partial>(column, lanes);
#pragma GCC unroll 8
        for (int t = 0; t < Taps; t++)
          if ((x - t) % Stride == 0 && x >= t && (x - t) / Stride < Windows)
            sum[(x - t) / Stride] += pixels * weight[t];
      }
    }
    T* to = out + c;
#pragma GCC unroll 8
    for (int i = 0; i < Windows; i++, to += out_step) store_some<Partial>(to, sum[i], lanes);
  }
};

// All channels of a block of windows.
template <class T, int Taps, int Stride, int Windows>
void multiply_overlapping(const Overlapping<T>& block, int64_t channels) {
  constexpr int64_t L = kLanes<T>;
  const bool inside = block.left >= 0 && block.left + (Windows - 1) * Stride + Taps <= block.width;
  int64_t c = 0;
  if (inside) {
    for (; c + L <= channels; c += L)
      block.template multiply<Taps, Stride, Windows, true, false>(c, L);
  } else {
    for (; c + L <= channels; c += L)
      block.template multiply<Taps, Stride, Windows, false, false>(c, L);
  }
  if (c < channels) block.template multiply<Taps, Stride, Windows, false, true>(c, channels - c);
}

template <class T>
using OverlappingBlock = void (*)(const Overlapping<T>&, int64_t);

// By windows - 1.
template <class T, int Taps, int Stride, int... Windows>
OverlappingBlock<T> overlapping_block(int64_t windows, std::integer_sequence<int, Windows...>) {
  static constexpr OverlappingBlock<T> kBlocks[] = {
      &multiply_overlapping<T, Taps, Stride, Windows + 1>...};
  return kBlocks[windows - 1];
}

// Null: there is none for such windows.
template <class T>
OverlappingBlock<T> overlapping_block(const Window& w, int64_t windows) {
  constexpr std::make_integer_sequence<int, kMostOverlapping> kCounts;
  const auto by_stride = [&]<int Taps>(std::integral_constant<int, Taps>) -> OverlappingBlock<T> {
    if (w.stride_width == 1) return overlapping_block<T, Taps, 1>(windows, kCounts);
    if (w.stride_width == 2) return overlapping_block<T, Taps, 2>(windows, kCounts);
    return nullptr;
  };
  if (w.dilation_width != 1 || w.kernel_depth != 1) return nullptr;
  switch (w.kernel_width) {
    case 3: return by_stride(std::integral_constant<int, 3>{});
    case 5: return by_stride(std::integral_constant<int, 5>{});
    case 7: return by_stride(std::integral_constant<int, 7>{});
    default: return nullptr;
  }
}

// The windows [first_x, first_x + count) of one output row, in blocks of nearly equal size. False:
// there are no such blocks.
template <class T>
bool multiply_overlapping_row(const Window& w, const T* image, const T* weights, T* out,
                              int64_t out_step, int64_t y, int64_t first_x, int64_t count,
                              int64_t channels) {
  const int64_t blocks = ceil_div(count, int64_t{kMostOverlapping});
  const int64_t step = ceil_div(count, blocks);
  const OverlappingBlock<T> block = overlapping_block<T>(w, step);
  if (block == nullptr) return false;
  const int64_t row_step = int64_t{w.width} * w.pixel;
  const Taps rows = along_rows(w).inside(y);
  const int64_t top = along_rows(w).place(y, rows.begin);
  Overlapping<T> at;
  at.out_step = out_step;
  at.at = image + top * row_step;
  at.width = w.width;
  at.pixel = w.pixel;
  at.rows = rows.count();
  at.row_step = w.dilation_height * row_step;
  at.later_row_step = row_step;
  at.later_rows = w.height * row_step * int64_t{sizeof(T)} >= kFarBytes ? w.stride_height : 0;
  at.weight_step = w.weights;
  at.weights = weights + rows.begin * w.kernel_width * w.weights;
  // Behind the rows of these windows. Those behind the last ones of an image are the next one's.
  const T* const later = image + (along_rows(w).place(y, w.kernel_height - 1) + 1) * row_step;
  for (int64_t x = 0; x < count; x += step) {
    at.out = out + x * out_step;
    at.left = (first_x + x) * w.stride_width - w.pad_left;
    at.later = later + at.left * w.pixel;
    const int64_t windows = lesser(step, count - x);
    (windows == step ? block : overlapping_block<T>(w, windows))(at, channels);
  }
  return true;
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
