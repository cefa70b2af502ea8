// Blocks of C as dot products, for which few rows or columns of it pay: B is read column by column.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/blocks.h"
#include "npu/host/transpose.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kDots = 4;  // rows, and columns, of a block of dot products

template <class V>
DVM_INLINE auto fold_halves(V v) {
  if constexpr (sizeof(V) > 16)
    return fold_halves(low_half(v) + high_half(v));
  else
    return v;
}

// Lane i is the sum of the lanes of v[i]: as many vectors as lanes of 16 bytes. Each step halves
// them, which takes a third of what sums one by one take.
template <class V, int Count>
DVM_INLINE auto sum_lanes(const V (&v)[Count]) {
  if constexpr (Count == 1) {
    return fold_halves(v[0]);
  } else {
    constexpr auto kLane = std::make_integer_sequence<int, kLanesOf<V>>{};
    constexpr int kHalf = Count / 2;
    V half[kHalf];
#pragma GCC unroll 4
    for (int i = 0; i < kHalf; i++)
      half[i] = merge_low<kHalf>(v[i], v[i + kHalf], kLane) +
                merge_high<kHalf>(v[i], v[i + kHalf], kLane);
    return sum_lanes(half);
  }
}

// A block of C: rows of A by columns of B, both contiguous along k. Of a Step that ends results,
// ends as is said.
template <class Step, int Rows, int Columns>
DVM_INLINE void multiply_dots(const Product<Step>& x) {
  using T = typename Step::A;
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  V sum[Rows][Columns] = {};
  for_each_run(x, [&](const T* a, const T* b) DVM_LAMBDA_INLINE {
    const auto step = [&](auto load_at) DVM_LAMBDA_INLINE {
      V column[Columns];
#pragma GCC unroll 4
      for (int j = 0; j < Columns; j++) column[j] = load_at(b + j * x.b_column);
#pragma GCC unroll 4
      for (int i = 0; i < Rows; i++) {
        const V row = load_at(a + i * x.a_row);
#pragma GCC unroll 4
        for (int j = 0; j < Columns; j++) sum[i][j] += row * column[j];
      }
    };
    int64_t k = 0;
    for (; k + L <= x.k; k += L)
      step([k](const T* at) DVM_LAMBDA_INLINE { return load<V>(at + k); });
    if (k < x.k) {
      step([k, n = x.k - k](const T* at) DVM_LAMBDA_INLINE { return load_partial<V>(at + k, n); });
    }
  });
  constexpr int kAtOnce = 16 / sizeof(T);
#pragma GCC unroll 8
  for (int first = 0; first < Rows * Columns; first += kAtOnce) {
    V some[kAtOnce];
#pragma GCC unroll 4
    for (int i = 0; i < kAtOnce; i++) {
      const int at = lesser(first + i, Rows * Columns - 1);
      some[i] = sum[at / Columns][at % Columns];
    }
    const auto sums = sum_lanes(some);
#pragma GCC unroll 4
    for (int i = 0; i < kAtOnce; i++) {
      if (first + i == Rows * Columns) break;
      const int row = (first + i) / Columns, column = (first + i) % Columns;
      const T before = x.accumulate ? x.from[row * x.from_row + column] : T{0};
      T value = sums[i] + before;
      if constexpr (Step::kEnds) value = x.ending.end(splat<V>(value))[0];
      x.c[row * x.c_row + column] = value;
    }
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
