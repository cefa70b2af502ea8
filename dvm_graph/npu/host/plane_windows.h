// Pools over planes: images of one channel, whose neighbouring windows lie side by side.
//
// Some rows of windows at a time, in two passes. First the taps along each column are reduced, for
// all columns that the windows of a row read, into a row that stays in the first-level cache:
// windows share what they have in common. Then neighbouring columns are, for vectors of windows.
// What lies outside the image is in these rows what changes nothing, so that loops do not know of
// borders. Compiled per level: see simd.h.
#pragma once

#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

template <class V, int... I>
DVM_INLINE V every_second(V low, V high, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(low, high, (2 * I)...);
}

template <class Op, class T>
class PlanePool {
  using V = Full<T>;
  using Numbers = IntegerVec<V>;
  static constexpr int64_t L = kLanes<T>;
  static constexpr int64_t kRoom = 8192 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kSlack = 3 * L;  // of a row: before it, to align it, and behind it

 public:
  // Whether a row has room for what a vector of windows reads.
  static bool fits(const Window& w) { return columns_of(w, L) + kSlack <= kRoom; }

  PlanePool(const Window& w, const T* images)
      : w_(w), rows_(along_rows(w)), images_(images), end_(images + w.pixels()) {
    most_ = (kRoom - kSlack - columns_of(w, 1)) / w.stride_width + 1;
    for (int64_t lane = 0; lane < L; lane++)
      place_[lane] = static_cast<Element<Numbers>>(lesser(lane * w.stride_width, 2 * L - 1));
  }

  // Windows in order, from one on, whose results are neighbours.
  void reduce(T* out, int64_t number, int64_t count) const {
    alignas(kLineBytes) T room[kRoom];
    T* const end = out + count;
    while (out < end) {
      const Position at(w_, number);
      const int64_t windows = lesser(lesser(w_.out_width - at.x, most_), end - out);
      const int64_t left = at.x * w_.stride_width - w_.pad_left;
      const int64_t columns = columns_of(w_, windows);
      const int64_t first = lesser(greater<int64_t>(-left, 0), columns);  // inside the image
      const int64_t last = greater(lesser(w_.width - left, columns), first);
      const int64_t step = ceil_div(columns + kSlack, L) * L;
      int64_t rows = 1;
      if (windows == w_.out_width)
        rows = lesser(lesser(w_.out_height - at.y, (end - out) / windows), kRoom / step);
      T* const begin = room + (L - first % L) % L;
      const T* const image = images_ + at.image * w_.height * w_.width + left;
      for (int64_t row = 0; row < rows; row++)
        reduce_taps(image, at.y + row, begin + row * step, first, last, columns);
      for (int64_t row = 0; row < rows; row++, out += windows)
        reduce_columns(begin + row * step, out, windows, end);
      number += rows * windows;
    }
  }

 private:
  static int64_t columns_of(const Window& w, int64_t windows) {
    return (windows - 1) * w.stride_width + int64_t{w.kernel_width - 1} * w.dilation_width + 1;
  }

  // The columns [first, last) of those that windows of row `y` read, and nothing around them.
  void reduce_taps(const T* image, int64_t y, T* to, int64_t first, int64_t last,
                   int64_t columns) const {
    const Taps taps = rows_.inside(y);
    const int64_t step = int64_t{w_.dilation_height} * w_.width;
    const T* const in = image + rows_.place(y, taps.begin) * w_.width;
    fill(to, 0, first);
    if (taps.count() == 0)
      fill(to, first, last);
    else
      reduce_each(in, taps.count(), step, to, first, last);
    fill(to, last, columns);
  }
  DVM_INLINE static void fill(T* to, int64_t from, int64_t until) {
    for (int64_t i = from; i < until; i += L) store(to + i, splat<V>(Op::template kFirst<T>));
  }

  // to[i] = of in[y * step + i] for y < rows. Behind the last one it may be any value.
  void reduce_each(const T* in, int64_t rows, int64_t step, T* to, int64_t first,
                   int64_t last) const {
    constexpr int kBlock = 4;
    int64_t i = first;
    for (; i + kBlock * L <= last; i += kBlock * L)
      reduce_vectors<kBlock>(in + i, rows, step, to + i);
    for (; i < last; i += L) {
      if (i + L <= last || in + (rows - 1) * step + i + L <= end_)
        reduce_vectors<1>(in + i, rows, step, to + i);
      else
        reduce_vectors<1, true>(in + i, rows, step, to + i, last - i);
    }
  }
  template <int Vectors, bool Partial = false>
  DVM_INLINE static void reduce_vectors(const T* in, int64_t rows, int64_t step, T* to,
                                        int64_t lanes = 0) {
    V sum[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) sum[v] = splat<V>(Op::template kFirst<T>);
    for (int64_t y = 0; y < rows; y++, in += step) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; v++)
        sum[v] = Op::step(sum[v], Partial ? load_partial<V>(in, lanes) : load<V>(in + v * L), V{});
    }
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) store(to + v * L, sum[v]);
  }

  // Windows of a row. What is too much is the next one's.
  void reduce_columns(const T* row, T* out, int64_t windows, const T* end) const {
    if (w_.stride_width == 1) return reduce_columns<1>(row, out, windows, end);
    if (w_.stride_width == 2) return reduce_columns<2>(row, out, windows, end);
    reduce_columns<0>(row, out, windows, end);
  }
  template <int Stride>
  void reduce_columns(const T* row, T* out, int64_t windows, const T* end) const {
    const int64_t stride = Stride == 0 ? w_.stride_width : Stride;
    const int64_t together = Stride == 0 ? (2 * L - 1) / stride + 1 : L;
    const int64_t taps = w_.kernel_width, dilation = w_.dilation_width;
    for (int64_t x = 0; x < windows; x += together, row += together * stride) {
      const T* tap = row;
      V sum = splat<V>(Op::template kFirst<T>);
      for (int64_t i = 0; i < taps; i++, tap += dilation)
        sum = Op::step(sum, of_windows<Stride>(tap), V{});
      if (out + x + L <= end)
        store(out + x, sum);
      else
        store_partial(out + x, sum, lesser(end - out - x, L));
    }
  }
  // A column of each of a vector of windows.
  template <int Stride>
  DVM_INLINE V of_windows(const T* from) const {
    if constexpr (Stride == 1) return load<V>(from);
    const V low = load<V>(from), high = load<V>(from + L);
    if constexpr (Stride == 2)
      return every_second(low, high, std::make_integer_sequence<int, static_cast<int>(L)>{});
    return shuffled(low, high, place_);
  }

  const Window& w_;
  const Along rows_;
  const T *const images_, *const end_;
  int64_t most_;  // windows of a row at once
  Numbers place_;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
