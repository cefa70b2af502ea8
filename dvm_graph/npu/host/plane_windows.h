// Pools over planes: images of one channel, whose neighbouring windows lie side by side.
//
// Some rows of windows at a time, in two passes. First the taps along each column are reduced, for
// all columns that the windows of a row read, into a row that stays in the first-level cache:
// windows share what they have in common. Then neighbouring columns are, for vectors of windows.
// What lies outside the image is in these rows what changes nothing, so that loops do not know of
// borders. Whether there is a NaN, for which greatest numbers are compared once more, is known of
// all columns before windows are reduced. Compiled per level: see simd.h.
#pragma once

#include "npu/host/folds.h"
#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

template <int First, class V, int... I>
DVM_INLINE V every_second(V low, V high, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(low, high, (2 * I + First)...);
}

template <class V, class W>
DVM_INLINE V with_zeros(W v) {
  if constexpr (std::is_same_v<V, W>)
    return v;
  else
    return with_zeros<V>(join(v, W{}));
}

template <class Op, class T>
class PlanePool {
  using V = Full<T>;
  using Numbers = IntegerVec<V>;
  static constexpr int64_t L = kLanes<T>;
  static constexpr bool kSees = !std::is_same_v<Op, typename Op::OfNumbers>;
  using Seen = std::conditional_t<kSees, NaNLanes<V>, NoLanes>;
  static constexpr int64_t kRoom = 8192 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kSlack = 3 * L;  // of a row: before it, to align it, and behind it

 public:
  // Whether a row has room for what a vector of windows reads.
  static bool fits(const Window& w) { return columns_of(w, L) + kSlack <= kRoom; }

  PlanePool(const Window& w, const T* images)
      : w_(w), rows_(along_rows(w)), images_(images), end_(images + w.pixels()) {
    most_ = (kRoom - kSlack - columns_of(w, 1)) / w.stride_width + 1;
    for (int64_t lane = 0; lane < L; lane++) {
      lane_[lane] = static_cast<Element<Numbers>>(lane);
      place_[lane] = static_cast<Element<Numbers>>(lesser(lane * w.stride_width, 2 * L - 1));
    }
  }

  // Windows in order, from one on, whose results are neighbours.
  void reduce(T* out, int64_t number, int64_t count) const {
    alignas(kLineBytes) T room[kRoom];
    T* const end = out + count;
    Rows at;
    while (out < end) {
      const Position first(w_, number);
      const int64_t windows = lesser(lesser(w_.out_width - first.x, most_), end - out);
      at.take(w_, first.x * w_.stride_width - w_.pad_left, windows, room);
      int64_t rows = 1;
      if (windows == w_.out_width)
        rows = lesser(lesser(w_.out_height - first.y, (end - out) / windows), kRoom / at.step);
      const T* const image = images_ + first.image * w_.height * w_.width;
      if (meets_nan(at, image, first.y, rows))
        reduce_columns<Op>(at, rows, out, end);
      else
        reduce_columns<typename Op::OfNumbers>(at, rows, out, end);
      out += rows * windows;
      number += rows * windows;
    }
  }

 private:
  // How reduced rows lie in the room for them: the columns that windows read, from one of the image
  // on, and which of those are inside. The others hold what changes nothing, and keep it.
  struct Rows {
    int64_t windows = 0, left = 0;
    int64_t columns = 0, first = 0, last = 0, step = 0;
    T* begin = nullptr;

    void take(const Window& w, int64_t from, int64_t count, T* room) {
      if (count == windows && from == left) return;
      windows = count;
      left = from;
      columns = columns_of(w, windows);
      first = lesser(greater<int64_t>(-left, 0), columns);
      last = greater(lesser(w.width - left, columns), first);
      step = ceil_div(columns + kSlack, L) * L;
      begin = room + (L - first % L) % L;
      fill(room, kRoom);
    }
  };

  static int64_t columns_of(const Window& w, int64_t windows) {
    return (windows - 1) * w.stride_width + int64_t{w.kernel_width - 1} * w.dilation_width + 1;
  }
  DVM_INLINE static void fill(T* to, int64_t n) {
    for (int64_t i = 0; i < n; i += L) store(to + i, splat<V>(Op::template kFirst<T>));
  }

  // Reduces the columns of some rows of windows; returns whether any of them was NaN, where that
  // matters.
  bool meets_nan(const Rows& at, const T* image, int64_t y, int64_t rows) const {
    Seen seen;
    for (int64_t row = 0; row < rows;) {
      const Taps taps = rows_.inside(y + row);
      const int64_t same = lesser(rows_.next_other(taps) - y, rows) - row;
      const T* const in = image + at.left + rows_.place(y + row, taps.begin) * w_.width;
      T* const to = at.begin + row * at.step;
      switch (taps.count()) {
        case 0: fill_rows(at, to, same); break;
        case 1: reduce_taps<1>(at, in, 1, to, same, seen); break;
        case 2: reduce_taps<2>(at, in, 2, to, same, seen); break;
        case 3: reduce_taps<3>(at, in, 3, to, same, seen); break;
        default: reduce_taps<0>(at, in, taps.count(), to, same, seen);
      }
      row += same;
    }
    if constexpr (kSees) return seen.any();
    return false;
  }

  // The columns inside the image: what is in the others stays.
  DVM_INLINE void fill_rows(const Rows& at, T* to, int64_t rows) const {
    for (int64_t row = 0; row < rows; row++, to += at.step) fill(to + at.first, at.last - at.first);
  }

  // Rows of as many taps, a number that is known unless it is 0.
  template <int Known>
  void reduce_taps(const Rows& at, const T* in, int64_t taps, T* to, int64_t rows,
                   Seen& seen) const {
    constexpr int kBlock = 4;
    const int64_t step = int64_t{w_.dilation_height} * w_.width;
    const int64_t of_row = int64_t{w_.stride_height} * w_.width;
    if constexpr (Known > 0) taps = Known;
    for (int64_t row = 0; row < rows; row++, in += of_row, to += at.step) {
      int64_t i = at.first;
      for (; i + kBlock * L <= at.last; i += kBlock * L)
        reduce_vectors<Known, kBlock>(in + i, taps, step, to + i, seen);
      for (; i + L <= at.last; i += L) reduce_vectors<Known, 1>(in + i, taps, step, to + i, seen);
      if (i == at.last) continue;
      const int64_t lanes = at.last - i, there = end_ - (in + i) - (taps - 1) * step;
      with_least<V>(lanes, [&]<class W>(W) DVM_LAMBDA_INLINE {
        W sum;
        if (there >= kLanesOf<W>)
          reduce_into<Known, 1>(&sum, in + i, taps, step);
        else
          reduce_into<Known, 1, true>(&sum, in + i, taps, step, lanes);
        const auto lane = slice<0>(lane_, std::make_integer_sequence<int, kLanesOf<W>>{});
        const auto inside = lane < static_cast<Element<Numbers>>(lanes);
        const W kept = inside ? sum : splat<W>(Op::template kFirst<T>);
        store(to + i, kept);
        seen.see(with_zeros<V>(kept), V{});
      });
    }
  }
  // The shortest vector that has so many lanes.
  template <class W, class Take>
  DVM_INLINE static void with_least(int64_t lanes, Take take) {
    if constexpr (sizeof(W) > 16) {
      using Half = Vec<T, kLanesOf<W> / 2>;
      if (lanes <= kLanesOf<Half>) return with_least<Half>(lanes, take);
    }
    take(W{});
  }
  template <int Known, int Vectors>
  DVM_INLINE static void reduce_vectors(const T* in, int64_t taps, int64_t step, T* to,
                                        Seen& seen) {
    V sum[Vectors];
    reduce_into<Known, Vectors>(sum, in, taps, step);
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v += 2) seen.see(sum[v], sum[Vectors > 1 ? v + 1 : v]);
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) store(to + v * L, sum[v]);
  }
  template <int Known, int Vectors, bool Partial = false, class W>
  DVM_INLINE static void reduce_into(W* sum, const T* in, int64_t taps, int64_t step,
                                     int64_t lanes = 0) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) sum[v] = Op::begin(load_some<W, Partial>(in + v * L, lanes));
    const auto add = [&]() DVM_LAMBDA_INLINE {
      in += step;
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; v++)
        sum[v] = Op::step(sum[v], load_some<W, Partial>(in + v * L, lanes), W{});
    };
    if constexpr (Known > 0) {
#pragma GCC unroll 4
      for (int y = 1; y < Known; y++) add();
    } else {
      for (int64_t y = 1; y < taps; y++) add();
    }
  }

  template <class Step>
  DVM_INLINE void reduce_columns(const Rows& at, int64_t rows, T* out, const T* end) const {
    const auto take = [&]<int Stride>(std::integral_constant<int, Stride>) DVM_LAMBDA_INLINE {
      if (w_.dilation_width == 1 && w_.kernel_width == 2)
        return reduce_columns<Step, Stride, 2>(at, rows, out, end);
      if (w_.dilation_width == 1 && w_.kernel_width == 3)
        return reduce_columns<Step, Stride, 3>(at, rows, out, end);
      reduce_columns<Step, Stride, 0>(at, rows, out, end);
    };
    if (w_.stride_width == 1) return take(std::integral_constant<int, 1>{});
    if (w_.stride_width == 2) return take(std::integral_constant<int, 2>{});
    reduce_columns<Step, 0, 0>(at, rows, out, end);
  }
  // So many neighbouring taps, or as many as there are. What is too much is the next row's.
  template <class Step, int Stride, int Known>
  void reduce_columns(const Rows& at, int64_t rows, T* out, const T* end) const {
    const int64_t stride = Stride == 0 ? w_.stride_width : Stride;
    const int64_t together = Stride == 0 ? (2 * L - 1) / stride + 1 : L;
    const T* begin = at.begin;
    for (int64_t row = 0; row < rows; row++, begin += at.step, out += at.windows) {
      const T* tap = begin;
      for (int64_t x = 0; x < at.windows; x += together, tap += together * stride) {
        const auto take = [&]<class W>(W) DVM_LAMBDA_INLINE {
          const W sum = reduced<Step, Stride, Known, W>(tap);
          if (out + x + kLanesOf<W> <= end)
            store(out + x, sum);
          else
            store_partial(out + x, sum, lesser<int64_t>(end - out - x, kLanesOf<W>));
        };
        if constexpr (Stride == 0)
          take(V{});  // whose places are known
        else
          with_least<V>(at.windows - x, take);
      }
    }
  }
  template <class Step, int Stride, int Known, class W>
  DVM_INLINE W reduced(const T* tap) const {
    if constexpr (Stride == 2 && Known > 0) {
      constexpr auto kLane = std::make_integer_sequence<int, kLanesOf<W>>{};
      const W low = load<W>(tap), high = load<W>(tap + kLanesOf<W>);
      W sum = Step::begin(every_second<0>(low, high, kLane));
      sum = Step::step(sum, every_second<1>(low, high, kLane), W{});
      if constexpr (Known == 3) sum = Step::step(sum, of_windows<Stride, W>(tap + 2), W{});
      return sum;
    }
    const int64_t taps = Known > 0 ? Known : w_.kernel_width;
    const int64_t dilation = Known > 0 ? 1 : w_.dilation_width;
    W sum = Step::begin(of_windows<Stride, W>(tap));
#pragma GCC unroll 4
    for (int64_t i = 1; i < taps; i++)
      sum = Step::step(sum, of_windows<Stride, W>(tap + i * dilation), W{});
    return sum;
  }
  // A column of each of a vector of windows.
  template <int Stride, class W>
  DVM_INLINE W of_windows(const T* from) const {
    if constexpr (Stride == 1) {
      return load<W>(from);
    } else {
      const W low = load<W>(from), high = load<W>(from + kLanesOf<W>);
      if constexpr (Stride == 2)
        return every_second<0>(low, high, std::make_integer_sequence<int, kLanesOf<W>>{});
      else
        return shuffled(low, high, place_);
    }
  }

  const Window& w_;
  const Along rows_;
  const T *const images_, *const end_;
  int64_t most_;  // windows of a row at once
  Numbers lane_, place_;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
