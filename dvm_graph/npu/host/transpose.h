// In-register transposes of square blocks: L vectors of L lanes, in log2(L) steps that swap the
// off-diagonal quarters of ever smaller blocks; and of two to four vectors, whose elements then lie
// side by side. Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kShuffledBytes = 16;  // of a vector, which instructions shuffle by themselves

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
  constexpr auto kLane = std::make_integer_sequence<int, kLanesOf<V>>{};
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

// Elements of two vectors in turns, from the lower or the upper halves of each 16 bytes of them.
template <bool High, class V, int... I>
DVM_INLINE V interleaved(V a, V b, std::integer_sequence<int, I...>) {
  constexpr int L = kLanesOf<V>, kPart = kShuffledBytes / sizeof(Element<V>);
  constexpr int kFirst = High ? kPart / 2 : 0;
  return __builtin_shufflevector(
      a, b, (I / kPart * kPart + kFirst + I % kPart / 2 + (I % 2 != 0 ? L : 0))...);
}

// Blocks whose rows have the 16 bytes within which vectors interleave: log2(L) times, each vector
// with the one half of them further.
template <int Steps, class V, int L>
DVM_INLINE void interleave_step(V (&rows)[L]) {
  constexpr auto kLane = std::make_integer_sequence<int, kLanesOf<V>>{};
  V next[L];
#pragma GCC unroll 64
  for (int i = 0; i < L / 2; i++) {
    next[2 * i] = interleaved<false>(rows[i], rows[i + L / 2], kLane);
    next[2 * i + 1] = interleaved<true>(rows[i], rows[i + L / 2], kLane);
  }
#pragma GCC unroll 64
  for (int i = 0; i < L; i++) rows[i] = next[i];
  if constexpr (Steps > 2) interleave_step<Steps / 2>(rows);
}

// Of vectors of more lanes, blocks side by side.
template <class V, int L>
DVM_INLINE void transpose_block(V (&rows)[L]) {
  static_assert(kLanesOf<V> % L == 0);
  if constexpr (L > 1 && L * sizeof(Element<V>) == kShuffledBytes)
    interleave_step<L>(rows);
  else if constexpr (L > 1)
    transpose_step<L / 2>(rows);
}

// Lane i of the result is number i * Few + First of all lanes of `rows`, or, by planes,
// lane (First + i) / Few of vector (First + i) % Few.
template <bool ByPlanes, int First, class V, int Few, int... I>
DVM_INLINE V picked(const V (&rows)[Few], std::integer_sequence<int, I...>) {
  constexpr int L = kLanesOf<V>;
  static_assert(Few >= 2 && Few <= 4);
  constexpr auto at = [](int lane) {
    return ByPlanes ? (First + lane) % Few * L + (First + lane) / Few : lane * Few + First;
  };
  const V low = __builtin_shufflevector(rows[0], rows[1], (at(I) < 2 * L ? at(I) : 0)...);
  if constexpr (Few == 2) return low;
  V high = rows[2];
  if constexpr (Few == 3) {
    return __builtin_shufflevector(low, high, (at(I) < 2 * L ? I : at(I) - L)...);
  } else {
    high = __builtin_shufflevector(rows[2], rows[3], (at(I) < 2 * L ? 0 : at(I) - 2 * L)...);
    return __builtin_shufflevector(low, high, (at(I) < 2 * L ? I : L + I)...);
  }
}

template <bool ByPlanes, class V, int Few, int... I>
DVM_INLINE void pick_all(V (&rows)[Few], std::integer_sequence<int, I...> lanes) {
  constexpr int L = kLanesOf<V>;
  constexpr int kNext = ByPlanes ? L : 1;
  V result[Few] = {picked<ByPlanes, 0>(rows, lanes), picked<ByPlanes, kNext>(rows, lanes)};
  if constexpr (Few > 2) result[2] = picked<ByPlanes, 2 * kNext>(rows, lanes);
  if constexpr (Few > 3) result[3] = picked<ByPlanes, 3 * kNext>(rows, lanes);
#pragma GCC unroll 4
  for (int j = 0; j < Few; j++) rows[j] = result[j];
}

// Every Few-th element of Few vectors, which follow each other: vector j begins with the j-th one.
template <class V, int Few, int... I>
DVM_INLINE void take_apart(V (&rows)[Few], std::integer_sequence<int, I...> lanes) {
  pick_all<false>(rows, lanes);
}
// The way back.
template <class V, int Few, int... I>
DVM_INLINE void put_together(V (&rows)[Few], std::integer_sequence<int, I...> lanes) {
  pick_all<true>(rows, lanes);
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
