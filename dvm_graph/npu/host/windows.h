// Where windows over images lie, and which of their taps are inside.
// Compiled per level: see simd.h.
#pragma once

#include "kernels/window.h"
#include "npu/host/loops.h"

namespace dvm::DVM_LEVEL {
namespace {

// A range of taps along one axis.
struct Taps {
  int64_t begin, end;

  DVM_INLINE int64_t count() const { return greater<int64_t>(end - begin, 0); }
};

// The taps of a window that lie inside an axis: first + tap * dilation in [0, extent).
// Divisions take as long as many taps: most dilations are 1.
DVM_INLINE Taps taps_inside(int64_t first, int64_t dilation, int64_t extent, int64_t kernel) {
  const auto whole = [&](int64_t a) { return dilation == 1 ? a : a / dilation; };
  const int64_t begin = first < 0 ? whole(dilation - 1 - first) : 0;
  const int64_t end = first < extent ? whole(extent - 1 - first) + 1 : 0;
  return {lesser(begin, kernel), lesser(greater<int64_t>(end, 0), kernel)};
}

// How windows move along one axis of an image.
struct Along {
  int64_t stride, pad, dilation, extent, kernel;

  DVM_INLINE Taps inside(int64_t window) const {
    return taps_inside(window * stride - pad, dilation, extent, kernel);
  }
  // Of a tap.
  DVM_INLINE int64_t place(int64_t window, int64_t tap) const {
    return window * stride - pad + tap * dilation;
  }
  // The first window behind one with these taps inside that has others.
  DVM_INLINE int64_t next_other(const Taps& taps) const {
    int64_t next = INT64_MAX;
    if (taps.begin > 0) next = ceil_div(pad - (taps.begin - 1) * dilation, stride);
    if (taps.end > 0) {
      next = lesser(next, ceil_div(extent + pad - (taps.end - 1) * dilation, stride));
    }
    return next;
  }
};

DVM_INLINE Along along_slices(const Window& w) {
  return {w.stride_depth, w.pad_front, w.dilation_depth, w.depth, w.kernel_depth};
}
DVM_INLINE Along along_rows(const Window& w) {
  return {w.stride_height, w.pad_top, w.dilation_height, w.height, w.kernel_height};
}
DVM_INLINE Along along_columns(const Window& w) {
  return {w.stride_width, w.pad_left, w.dilation_width, w.width, w.kernel_width};
}

// The position of a window.
struct Position {
  int64_t image, z, y, x;

  DVM_INLINE Position(const Window& w, int64_t number) {
    x = number % w.out_width;
    const int64_t row = number / w.out_width;
    y = row % w.out_height;
    const int64_t slice = row / w.out_height;
    z = slice % w.out_depth;
    image = slice / w.out_depth;
  }
  DVM_INLINE void advance(const Window& w) {
    if (++x < w.out_width) return;
    x = 0;
    if (++y < w.out_height) return;
    y = 0;
    if (++z < w.out_depth) return;
    z = 0;
    ++image;
  }
};

template <class V, bool Partial>
DVM_INLINE V load_some(const Element<V>* from, int64_t lanes) {
  if constexpr (Partial) return load_partial<V>(from, lanes);
  return load<V>(from);
}

template <bool Partial, class V>
DVM_INLINE void store_some(Element<V>* to, V v, int64_t lanes) {
  if constexpr (Partial)
    store_partial(to, v, lanes);
  else
    store(to, v);
}

DVM_INLINE Window window_at(const uint64_t* words, int operands) {
  Window window;
  __builtin_memcpy(&window, operand_words(words, operands), sizeof window);
  return window;
}

DVM_INLINE Tile<const std::byte> numbers_at(const Core& core, const uint64_t* words) {
  return tile_at<const std::byte>(core, operand_words(words, 2));
}
DVM_INLINE int64_t first_number(const Tile<const std::byte>& numbers) {
  return reinterpret_cast<int64_t>(numbers.at);
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
