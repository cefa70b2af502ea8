// What reductions fold with: the identity of each, how two vectors are combined, and the fold of
// one vector's lanes. Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"
#include "vm/isa.h"

namespace dvm::DVM_LEVEL {
namespace {

template <Family F>
struct Fold;
template <class T>
constexpr T kLowest = std::is_same_v<T, float>     ? static_cast<T>(-__builtin_inff())
                      : std::is_same_v<T, double>  ? static_cast<T>(-__builtin_inf())
                      : std::is_same_v<T, int32_t> ? static_cast<T>(INT32_MIN)
                      : std::is_same_v<T, int64_t> ? static_cast<T>(INT64_MIN)
                                                   : static_cast<T>(0);
template <class T>
constexpr T kHighest = std::is_same_v<T, float>     ? static_cast<T>(__builtin_inff())
                       : std::is_same_v<T, double>  ? static_cast<T>(__builtin_inf())
                       : std::is_same_v<T, int32_t> ? static_cast<T>(INT32_MAX)
                       : std::is_same_v<T, int64_t> ? static_cast<T>(INT64_MAX)
                                                    : static_cast<T>(UINT8_MAX);

// Unsigned lanes for integers, whose sums and products wrap.
template <class V>
DVM_INLINE auto wrapping(V v) {
  if constexpr (std::is_floating_point_v<Element<V>>)
    return v;
  else
    return bits_as<Vec<std::make_unsigned_t<Element<V>>, kLanesOf<V>>>(v);
}

template <>
struct Fold<Family::v_reduce_sum> {
  template <class T>
  static constexpr T kIdentity = 0;
  template <class V>
  DVM_INLINE static V combine(V a, V b) {
    return bits_as<V>(wrapping(a) + wrapping(b));
  }
};
template <>
struct Fold<Family::v_reduce_prod> {
  template <class T>
  static constexpr T kIdentity = 1;
  template <class V>
  DVM_INLINE static V combine(V a, V b) {
    return bits_as<V>(wrapping(a) * wrapping(b));
  }
};
// a is the accumulator: its NaN is kept by the second select, a NaN in b by the comparison.
template <>
struct Fold<Family::v_reduce_max> {
  template <class T>
  static constexpr T kIdentity = kLowest<T>;
  template <class V>
  DVM_INLINE static V combine(V a, V b) {
    const V chosen = greater_lanes(a, b);
    if constexpr (std::is_floating_point_v<Element<V>>)
      return a != a ? a : chosen;
    else
      return chosen;
  }
};
template <>
struct Fold<Family::v_reduce_min> {
  template <class T>
  static constexpr T kIdentity = kHighest<T>;
  template <class V>
  DVM_INLINE static V combine(V a, V b) {
    const V chosen = lesser_lanes(a, b);
    if constexpr (std::is_floating_point_v<Element<V>>)
      return a != a ? a : chosen;
    else
      return chosen;
  }
};

template <class Op, class T>
DVM_INLINE T combine_one(T a, T b) {
  using V = Vec<T, 16 / sizeof(T)>;
  return Op::combine(splat<V>(a), splat<V>(b))[0];
}

template <class Op, int Step, class V>
DVM_INLINE V fold_by_rotation(V v) {
  if constexpr (Step == 0) {
    return v;
  } else {
    const V turned = rotate<Step>(v, std::make_integer_sequence<int, kLanesOf<V>>{});
    return fold_by_rotation<Op, Step / 2>(Op::combine(v, turned));
  }
}

template <class Op, class V>
DVM_INLINE Element<V> fold_lanes(V v) {
  if constexpr (sizeof(V) > 16)
    return fold_lanes<Op>(Op::combine(low_half(v), high_half(v)));
  else
    return fold_by_rotation<Op, kLanesOf<V> / 2>(v)[0];
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
