// Binary instructions over rows that lie one behind the other and have a value each from the other
// operand: they are run as one long row, so that no row ends in part of a vector.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/first_lanes.h"
#include "npu/host/rows.h"

namespace dvm::DVM_LEVEL {
namespace {

// The values of rows of n elements, no fewer than lanes, as lanes of the long row, which are asked
// for from left to right.
template <class T>
class ValuesOfRows {
  using V = Full<T>;

 public:
  DVM_INLINE ValuesOfRows(const T* at, int64_t stride, int64_t n)
      : value_(splat<V>(*at)), at_(at), stride_(stride), n_(n), end_(n) {}

  DVM_INLINE V lanes(int64_t i, int64_t count) {
    if (i + count <= end_) [[likely]]
      return value_;
    const V ending = value_;
    const int64_t left = end_ - i;
    at_ += stride_;
    value_ = splat<V>(*at_);
    end_ += n_;
    return first_lanes(ending, left, value_);
  }

 private:
  V value_;  // of the row that ends at end_
  const T* at_;
  const int64_t stride_, n_;
  int64_t end_;
};

// `Turned`: the value is the left operand.
template <class Op, class T, bool Turned>
void run_value_rows(const Extents& e, bool stream, const Tile<T>& out, const Tile<const T>& rows,
                    const Tile<const T>& values) {
  using V = Full<T>;
  const auto computed = [](V row, V value) DVM_LAMBDA_INLINE {
    return Turned ? Op::vector(value, row) : Op::vector(row, value);
  };
  for (int64_t o = 0; o < e.outer; o++) {
    const T* const row = rows.at + o * rows.outer;
    ValuesOfRows<T> of_rows(values.at + o * values.outer, values.middle, e.inner);
    store_row(
        out.at + o * out.outer, e.middle * e.inner, stream,
        [&](int64_t i)
            DVM_LAMBDA_INLINE { return computed(load<V>(row + i), of_rows.lanes(i, kLanes<T>)); },
        [&](int64_t i, int64_t count) DVM_LAMBDA_INLINE {
          return computed(load_partial<V>(row + i, count), of_rows.lanes(i, count));
        });
  }
}

// As binary_handler, of operations on vectors.
template <class Op, class T>
void value_rows_handler(Core& core, const uint64_t* words) {
  constexpr int L = kLanes<T>;
  Extents e = extents_of(core, words);
  if (e.middle <= 1 || e.empty()) return binary_handler<Op, T>(core, words);
  Tile<T> out = tile_at<T>(core, operand_words(words, 0));
  Tile<const T> a = tile_at<const T>(core, operand_words(words, 1)),
                b = tile_at<const T>(core, operand_words(words, 2));
  merge_loops(e, out, a, b);
  const int64_t n = e.inner;
  const bool one_row = e.middle > 1 && n > L && n % L != 0 && out.middle == n;
  if (one_row && a.inner != 0 && a.middle == n && b.inner == 0)
    return run_value_rows<Op, T, false>(e, streams(words), out, a, b);
  if (one_row && b.inner != 0 && b.middle == n && a.inner == 0)
    return run_value_rows<Op, T, true>(e, streams(words), out, b, a);
  binary_handler<Op, T>(core, words);
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
