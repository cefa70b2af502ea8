// In-register transposes of square blocks: L vectors of L lanes, in log2(L) steps that swap the
// off-diagonal quarters of ever smaller blocks. Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"

namespace dvm::DVM_LEVEL {
namespace {

// Lanes of (a, b): where bit `Block` of the lane is clear take a, else b moved up by Block lanes.
template <int Block, class V, int... I>
DVM_INLINE V merge_low(V a, V b, std::integer_sequence<int, I...>) {
  constexpr int L = kLanesOf<V>;
  return __builtin_shufflevector(a, b, ((I & Block) == 0 ? I : L + (I - Block))...);
}
// Where bit `Block` is clear take a moved down by Block lanes, else b.
template <int Block, class V, int... I>
DVM_INLINE V merge_high(V a, V b, std::integer_sequence<int, I...>) {
  constexpr int L = kLanesOf<V>;
  return __builtin_shufflevector(a, b, ((I & Block) == 0 ? I + Block : L + I)...);
}

template <int Block, class V, int L>
DVM_INLINE void transpose_step(V (&rows)[L]) {
  constexpr auto kLane = std::make_integer_sequence<int, L>{};
#pragma GCC unroll 64
  for (int i = 0; i < L; i++) {
    if ((i & Block) != 0) continue;
    const V low = merge_low<Block>(rows[i], rows[i + Block], kLane);
    const V high = merge_high<Block>(rows[i], rows[i + Block], kLane);
    rows[i] = low;
    rows[i + Block] = high;
  }
  if constexpr (Block > 1) transpose_step<Block / 2>(rows);
}

template <class V, int L>
DVM_INLINE void transpose_block(V (&rows)[L]) {
  static_assert(L == kLanesOf<V>);
  if constexpr (L > 1) transpose_step<L / 2>(rows);
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
