// Depth-wise convolutions whose windows of a row overlap, over channels-last images.
//
// Windows one or two pixels apart see most pixels several times. A block of neighbouring windows
// stays in registers, and the columns that any of them sees pass once for each row of taps, beside
// the weights of that row: a read for each column instead of one for each tap of each window.
// Columns outside the image pass by, so that windows at the borders are in blocks like all others.
// Channels pass a vector at a time, and so many of them before the next windows do that the rows
// which a window sees stay in the first-level cache. Rows of a large image come from far: those
// that the next row of windows reads first are fetched meanwhile. Compiled per level: see simd.h.
#pragma once

#include "npu/host/endings.h"
#include "npu/host/rows.h"
#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int64_t kFarBytes = int64_t{1} << 20;  // of an image that does not stay in L2
constexpr int64_t kRowBytes = 24576;             // of rows and weights that stay in L1
constexpr int kLeastVectors = 4;                 // of channels at a time: blocks are soon over
// Sums of a block, with the weights of a row of taps, are registers.
#if defined(DVM_AVX512)
constexpr int kMostOverlapping = 8;
#else
constexpr int kMostOverlapping = 6;
#endif

// What sums begin with, a number for each channel or for all, and what they end as.
template <class T>
struct Finish {
  const T* addend = nullptr;  // null: 0
  Ending<T> ending;
  bool stream = false;  // results go around the caches
};

// The sums of a block of windows at a vector of channels, gated: by way of memory, as those of
// products (blocks.h).
template <class T>
[[gnu::noinline]] void store_gated(Ending<T> ending, T* to, int64_t step, const Full<T>* sums,
                                   int64_t count, int64_t lanes, bool stream) {
  const auto store_all = [=](auto store_at) DVM_LAMBDA_INLINE {
    for (int64_t i = 0; i < count; i++) store_at(to + i * step, ending.gated(sums[i]));
  };
  using V = Full<T>;
  if (lanes < kLanes<T>)
    store_all([lanes](T* at, V v) DVM_LAMBDA_INLINE { store_partial(at, v, lanes); });
  else if (stream)
    store_all([](T* at, V v) DVM_LAMBDA_INLINE { store_stream(at, v); });
  else
    store_all([](T* at, V v) DVM_LAMBDA_INLINE { store(at, v); });
}

// Neighbouring windows of an output row.
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
  Finish<T> finish;

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
    V first{}, sum[Windows];
    if (finish.addend != nullptr) first = load_some<V, Partial>(finish.addend + c, lanes);
#pragma GCC unroll 8
    for (int i = 0; i < Windows; i++) sum[i] = first;
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
    const Ending<T>& ending = finish.ending;
    if (ending.gates()) [[unlikely]] {
      V kept[Windows];
#pragma GCC unroll 8
      for (int i = 0; i < Windows; i++) kept[i] = sum[i];
      return store_gated(ending, to, out_step, kept, Windows, lanes, finish.stream);
    }
    if (!Partial && finish.stream) {
#pragma GCC unroll 8
      for (int i = 0; i < Windows; i++, to += out_step) store_stream(to, ending.bounded(sum[i]));
      return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < Windows; i++, to += out_step)
      store_some<Partial>(to, ending.bounded(sum[i]), lanes);
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
  if (w.dilation_width != 1) return nullptr;
  switch (w.kernel_width) {
    case 3: return by_stride(std::integral_constant<int, 3>{});
    case 5: return by_stride(std::integral_constant<int, 5>{});
    case 7: return by_stride(std::integral_constant<int, 7>{});
    default: return nullptr;
  }
}

// A series of windows, as in window_loops.h, with what follows their sums.
template <class T>
class OverlappingSeries {
 public:
  // Fewer channels than fill most of a vector share it with those of other windows.
  static bool fits(const Window& w, int64_t channels) {
    return 2 * channels > kLanes<T> && overlapping_block<T>(w, 1) != nullptr;
  }

  explicit OverlappingSeries(const Finish<T>& finish) : finish_(finish) {}

  template <class X>
  DVM_INLINE void operator()(const Window& w, const X& x, T* out, int64_t out_step, int64_t count,
                             int64_t channels) const {
    Overlapping<T> at;
    at.finish = finish_;
    at.finish.stream = finish_.stream && kVectorBytes % kLineBytes == 0 &&
                       reinterpret_cast<uintptr_t>(out) % kLineBytes == 0 &&
                       out_step * int64_t{sizeof(T)} % kLineBytes == 0;
    at.out_step = out_step;
    at.width = w.width;
    at.pixel = w.pixel;
    at.row_step = int64_t{w.dilation_height} * w.width * w.pixel;
    at.later_row_step = int64_t{w.width} * w.pixel;
    const bool far = w.height * at.later_row_step * int64_t{sizeof(T)} >= kFarBytes;
    at.later_rows = far ? w.stride_height : 0;
    at.weight_step = w.weights;
    const int64_t piece = channels_at_once(w, channels);
    for (int64_t c = 0; c < channels; c += piece) {
      multiply_rows(w, at, x.images.at + c, x.weights.at + c, out + c, first_number(x.numbers),
                    count, lesser(piece, channels - c));
      if (at.finish.addend != nullptr) at.finish.addend += piece;
    }
  }

 private:
  static int64_t channels_at_once(const Window& w, int64_t channels) {
    constexpr int64_t kLeast = kLeastVectors * kLanes<T>;
    const int64_t pixels = int64_t{w.kernel_height} * w.width + w.taps();
    const int64_t most = kRowBytes / (pixels * int64_t{sizeof(T)}) / kLeast * kLeast;
    return most == 0 ? channels : lesser(most, channels);
  }

  // Output row by output row.
  static void multiply_rows(const Window& w, Overlapping<T>& at, const T* images, const T* weights,
                            T* out, int64_t number, int64_t count, int64_t channels) {
    const int64_t image_step = w.height * at.later_row_step;
    Position position(w, number);
    while (count > 0) {
      const int64_t windows = lesser(w.out_width - position.x, count);
      const Along down = along_rows(w);
      const Taps rows = down.inside(position.y);
      const T* const image = images + position.image * image_step;
      at.rows = rows.count();
      at.at = image + down.place(position.y, rows.begin) * at.later_row_step;
      at.weights = weights + rows.begin * w.kernel_width * w.weights;
      // Behind the rows of these windows. Those behind the last ones of an image are the next
      // one's.
      at.later = image + (down.place(position.y, w.kernel_height - 1) + 1) * at.later_row_step;
      multiply_row(w, at, out, position.x, windows, channels);
      out += windows * at.out_step;
      count -= windows;
      position.x += windows - 1;
      position.advance(w);
    }
  }

  // In blocks of nearly equal size.
  static void multiply_row(const Window& w, Overlapping<T>& at, T* out, int64_t first_x,
                           int64_t count, int64_t channels) {
    const T* const later = at.later;
    const int64_t step = ceil_div(count, ceil_div(count, int64_t{kMostOverlapping}));
    const OverlappingBlock<T> block = overlapping_block<T>(w, step);
    for (int64_t x = 0; x < count; x += step) {
      const int64_t windows = lesser(step, count - x);
      at.out = out + x * at.out_step;
      at.left = (first_x + x) * w.stride_width - w.pad_left;
      at.later = later + at.left * w.pixel;
      (windows == step ? block : overlapping_block<T>(w, windows))(at, channels);
    }
  }

  Finish<T> finish_;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
