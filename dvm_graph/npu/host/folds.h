// What reductions fold with: the identity of each, how two vectors are combined, and the fold of
// the lanes of many vectors at once. Compiled per level: see simd.h.
//
// The least and the greatest of numbers are NaN where any is. Where many vectors are folded they
// are combined as if none were, and what is NaN is looked for in two of them at a time:
// `combine_numbers` and `NaNsOf`.
#pragma once

#include "npu/host/simd.h"
#include "vm/core.h"
#include "vm/isa.h"

namespace dvm::DVM_LEVEL {

// Two reductions that are joined; returns what is behind them. In reduce.cpp.
const uint64_t* run_folds(Core& core, const uint64_t* words);

namespace {

template <Family F>
struct Fold;
template <class T>
constexpr T kLowest = std::is_same_v<T, float>     ? static_cast<T>(-__builtin_inff())
                      : std::is_same_v<T, double>  ? static_cast<T>(-__builtin_inf())
                      : std::is_same_v<T, int32_t> ? static_cast<T>(INT32_MIN)
                      : std::is_same_v<T, int64_t> ? static_cast<T>(INT64_MIN)
                      : std::is_same_v<T, int8_t>  ? static_cast<T>(INT8_MIN)
                                                   : static_cast<T>(0);
template <class T>
constexpr T kHighest = std::is_same_v<T, float>     ? static_cast<T>(__builtin_inff())
                       : std::is_same_v<T, double>  ? static_cast<T>(__builtin_inf())
                       : std::is_same_v<T, int32_t> ? static_cast<T>(INT32_MAX)
                       : std::is_same_v<T, int64_t> ? static_cast<T>(INT64_MAX)
                       : std::is_same_v<T, int8_t>  ? static_cast<T>(INT8_MAX)
                                                    : static_cast<T>(UINT8_MAX);

// Unsigned lanes for integers, whose sums and products wrap.
template <class V>
DVM_INLINE auto wrapping(V v) {
  if constexpr (std::is_floating_point_v<Element<V>>)
    return v;
  else
    return bits_as<Vec<std::make_unsigned_t<Element<V>>, kLanesOf<V>>>(v);
}

// The lanes in which a vector was NaN, of all that were seen.
template <class V>
class NaNLanes {
 public:
  DVM_INLINE void see(V a, V b) { lanes_ |= unordered(a, b); }
  DVM_INLINE V put_into(V folded) const {
    const V nan = splat<V>(static_cast<Element<V>>(__builtin_nan("")));
#if defined(DVM_AVX512)
    if constexpr (sizeof(Element<V>) == 4)
      return bits_as<V>(_mm512_mask_mov_ps(bits_as<__m512>(folded), lanes_, bits_as<__m512>(nan)));
    else
      return bits_as<V>(
          _mm512_mask_mov_pd(bits_as<__m512d>(folded), lanes_, bits_as<__m512d>(nan)));
#else
    return lanes_ ? nan : folded;
#endif
  }
  DVM_INLINE bool any() const {
#if defined(DVM_AVX512)
    return lanes_ != 0;
#else
    Element<IntegerVec<V>> all = 0;
    for (int lane = 0; lane < kLanesOf<V>; lane++) all |= lanes_[lane];
    return all != 0;
#endif
  }

 private:
  DVM_INLINE static auto unordered(V a, V b) {
    [[maybe_unused]] constexpr bool kSingle = sizeof(Element<V>) == 4;
#if defined(DVM_AVX512)
    if constexpr (kSingle)
      return _mm512_cmp_ps_mask(bits_as<__m512>(a), bits_as<__m512>(b), _CMP_UNORD_Q);
    else
      return _mm512_cmp_pd_mask(bits_as<__m512d>(a), bits_as<__m512d>(b), _CMP_UNORD_Q);
#elif defined(DVM_AVX2)
    using I = IntegerVec<V>;
    if constexpr (kSingle)
      return bits_as<I>(_mm256_cmp_ps(bits_as<__m256>(a), bits_as<__m256>(b), _CMP_UNORD_Q));
    else
      return bits_as<I>(_mm256_cmp_pd(bits_as<__m256d>(a), bits_as<__m256d>(b), _CMP_UNORD_Q));
#elif defined(DVM_X86)
    using I = IntegerVec<V>;
    if constexpr (kSingle)
      return bits_as<I>(_mm_cmpunord_ps(bits_as<__m128>(a), bits_as<__m128>(b)));
    else
      return bits_as<I>(_mm_cmpunord_pd(bits_as<__m128d>(a), bits_as<__m128d>(b)));
#else
    return IntegerVec<V>((a != a) | (b != b));
#endif
  }

  decltype(unordered(V{}, V{})) lanes_{};
};
struct NoLanes {
  template <class V>
  DVM_INLINE void see(V, V) {}
  template <class V>
  DVM_INLINE V put_into(V folded) const {
    return folded;
  }
};
// What Op looks for in vectors V that it combines as numbers.
template <class Op, class V>
using NaNsOf =
    std::conditional_t<Op::kExtreme && std::is_floating_point_v<Element<V>>, NaNLanes<V>, NoLanes>;

template <>
struct Fold<Family::v_reduce_sum> {
  static constexpr bool kExtreme = false;
  template <class T>
  static constexpr T kIdentity = 0;
  template <class V>
  DVM_INLINE static V combine(V a, V b) {
    return bits_as<V>(wrapping(a) + wrapping(b));
  }
  template <class V>
  DVM_INLINE static V combine_numbers(V a, V b) {
    return combine(a, b);
  }
};
template <>
struct Fold<Family::v_reduce_prod> {
  static constexpr bool kExtreme = false;
  template <class T>
  static constexpr T kIdentity = 1;
  template <class V>
  DVM_INLINE static V combine(V a, V b) {
    return bits_as<V>(wrapping(a) * wrapping(b));
  }
  template <class V>
  DVM_INLINE static V combine_numbers(V a, V b) {
    return combine(a, b);
  }
};
// a is the accumulator: its NaN is kept by the second select, a NaN in b by the comparison.
template <>
struct Fold<Family::v_reduce_max> {
  static constexpr bool kExtreme = true;
  template <class T>
  static constexpr T kIdentity = kLowest<T>;
  template <class V>
  DVM_INLINE static V combine(V a, V b) {
    const V chosen = combine_numbers(a, b);
    if constexpr (std::is_floating_point_v<Element<V>>)
      return a != a ? a : chosen;
    else
      return chosen;
  }
  template <class V>
  DVM_INLINE static V combine_numbers(V a, V b) {
    return greater_lanes(a, b);
  }
};
template <>
struct Fold<Family::v_reduce_min> {
  static constexpr bool kExtreme = true;
  template <class T>
  static constexpr T kIdentity = kHighest<T>;
  template <class V>
  DVM_INLINE static V combine(V a, V b) {
    const V chosen = combine_numbers(a, b);
    if constexpr (std::is_floating_point_v<Element<V>>)
      return a != a ? a : chosen;
    else
      return chosen;
  }
  template <class V>
  DVM_INLINE static V combine_numbers(V a, V b) {
    return lesser_lanes(a, b);
  }
};

template <class Op, class T>
DVM_INLINE T combine_one(T a, T b) {
  using V = Vec<T, 16 / sizeof(T)>;
  return Op::combine(splat<V>(a), splat<V>(b))[0];
}

// Half of the lanes of a and of b each, those that are folded with the other half: the two in turns
// of `Chunk` lanes; from 16 bytes on, which are not torn apart, all of a's before b's.
template <int Chunk, bool Second, class V, int... I>
DVM_INLINE V pair_lanes(V a, V b, std::integer_sequence<int, I...>) {
  constexpr int L = kLanesOf<V>, kBlock = 16 / static_cast<int>(sizeof(Element<V>));
  const auto source = [](int i) constexpr {
    if constexpr (Chunk < kBlock) {
      const int half = Second ? kBlock / 2 : 0, within = i % kBlock;
      return i - within + half + within / (2 * Chunk) * Chunk + within % Chunk +
             (within / Chunk % 2) * L;
    } else {
      const int block = i / kBlock, blocks = L / kBlock;
      return (2 * (block % (blocks / 2)) + (Second ? 1 : 0)) * kBlock + i % kBlock +
             block / (blocks / 2) * L;
    }
  };
  return __builtin_shufflevector(a, b, source(I)...);
}

template <class Op, int Chunk, class V>
DVM_INLINE V fold_pair(V a, V b) {
  constexpr auto kLane = std::make_integer_sequence<int, kLanesOf<V>>{};
  return Op::combine(pair_lanes<Chunk, false>(a, b, kLane), pair_lanes<Chunk, true>(a, b, kLane));
}

// Folds the lanes of each of `Rows` vectors, a power of two up to their lanes: lane i is what
// vector i % Rows has folded to. Two vectors become one in each step, so that many take hardly more
// instructions than one; what a vector folds to does not depend on the others, or how many there
// are.
template <class Op, int Chunk = 1, class V, int Rows>
DVM_INLINE V fold_lanes(V (&rows)[Rows]) {
  if constexpr (Chunk == kLanesOf<V>) {
    return rows[0];
  } else {
    constexpr int kLeft = Rows > 1 ? Rows / 2 : 1;
    V folded[kLeft];
#pragma GCC unroll 16
    for (int i = 0; i < kLeft; i++) {
      folded[i] = fold_pair<Op, Chunk>(rows[Rows > 1 ? 2 * i : 0], rows[Rows > 1 ? 2 * i + 1 : 0]);
    }
    return fold_lanes<Op, 2 * Chunk>(folded);
  }
}
// The same for `count` vectors, 0 < count <= Most; those behind are overwritten.
template <class Op, int Rows = 1, class V, int Most>
DVM_INLINE V fold_lanes_of(V (&rows)[Most], int64_t count) {
  if constexpr (Rows < Most) {
    if (count > Rows) return fold_lanes_of<Op, 2 * Rows>(rows, count);
  }
  for (int64_t i = count; i < Rows; i++) rows[i] = rows[0];
  V first[Rows];
  __builtin_memcpy(first, rows, sizeof first);
  return fold_lanes<Op>(first);
}

// Totals of rows, `stride` apart. Rows are gathered, so that their lanes are folded together; what
// comes out is stored as vectors where it can be: later instructions read them as such.
template <class Op, class T>
class Totals {
 public:
  // `lanes`: where the last totals, at most a vector, go as well; or null.
  DVM_INLINE Totals(T* to, int64_t stride, bool accumulate, T* lanes = nullptr)
      : to_(to), lanes_(lanes), stride_(stride), accumulate_(accumulate) {}

  // The lanes of a row's vector are left to fold.
  DVM_INLINE void add(Full<T> row) {
    rows_[count_] = row;
    if (++count_ == kMost) write();
  }
  // The same for a row of the next ones to write.
  DVM_INLINE void set(int64_t row, Full<T> lanes) { rows_[row] = lanes; }
  void write(int64_t count) {
    count_ = count;
    write();
  }
  [[gnu::noinline]] void write() {
    if (count_ == 0) return;
    Full<T> totals = fold_lanes_of<Op>(rows_, count_);
    if (stride_ == 1) {
      if (accumulate_) totals = Op::combine(load_partial<Full<T>>(to_, count_), totals);
      if (lanes_ != nullptr) store(lanes_, totals);
      store_partial(to_, totals, count_);
    } else {
      T each[kLanes<T>];
      store(each, totals);
      for (int64_t i = 0; i < count_; i++) {
        T& to = to_[i * stride_];
        to = accumulate_ ? combine_one<Op>(to, each[i]) : each[i];
      }
    }
    to_ += count_ * stride_;
    count_ = 0;
  }

 private:
  static constexpr int kMost = sizeof(T) == 1 ? 1 : kLanes<T>;  // bytes: not worth the code

  T* to_;
  T* const lanes_;
  const int64_t stride_;
  const bool accumulate_;
  Full<T> rows_[kMost];
  int64_t count_ = 0;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
