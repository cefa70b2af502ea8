// What functions of f32 lanes are written with. Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"

namespace dvm::DVM_LEVEL {
namespace {

using F = Full<float>;
using I = Full<int32_t>;
using U = Full<uint32_t>;  // for arithmetic on bits that may wrap
using D = Full<double>;
constexpr int kF = kLanes<float>;

template <int Number>
struct Index {
  static constexpr int k = Number;
};

// body(Index<0>{}), ..., body(Index<K - 1>{}): constant indices, so that strips are registers.
template <int K, class Body>
DVM_INLINE void each(Body body) {
  [&]<int... k>(std::integer_sequence<int, k...>)
      DVM_LAMBDA_INLINE { (body(Index<k>{}), ...); }(std::make_integer_sequence<int, K>{});
}

// To the nearest integer, half to even.
DVM_INLINE F round_lanes(F x) {
#if defined(DVM_AVX512)
  return bits_as<F>(_mm512_roundscale_ps(bits_as<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
#elif defined(DVM_AVX2)
  return bits_as<F>(
      _mm256_round_ps(bits_as<__m256>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  for (int i = 0; i < kF; i++) x[i] = __builtin_rintf(x[i]);
  return x;
#endif
}

// a b + c. Whether the compiler contracts the operators depends on what is around them.
DVM_INLINE F multiply_add(F a, F b, F c) {
#if defined(DVM_AVX512)
  return bits_as<F>(_mm512_fmadd_ps(bits_as<__m512>(a), bits_as<__m512>(b), bits_as<__m512>(c)));
#elif defined(DVM_AVX2)
  return bits_as<F>(_mm256_fmadd_ps(bits_as<__m256>(a), bits_as<__m256>(b), bits_as<__m256>(c)));
#else
  return a * b + c;
#endif
}
DVM_INLINE D multiply_add(D a, D b, D c) { return a * b + c; }

template <class V, int N>
DVM_INLINE V polynomial(V x, const Element<V> (&coefficients)[N]) {
  V sum = splat<V>(coefficients[N - 1]);
  for (int i = N - 2; i >= 0; i--) sum = multiply_add(sum, x, splat<V>(coefficients[i]));
  return sum;
}

DVM_INLINE F absolute(F x) { return bits_as<F>(bits_as<I>(x) & 0x7fffffff); }
DVM_INLINE F with_sign_of(F magnitude, F x) {
  return bits_as<F>(bits_as<I>(magnitude) | (bits_as<I>(x) & INT32_MIN));
}

DVM_INLINE F sqrt_lanes(F x) {
#if defined(DVM_AVX512)
  return bits_as<F>(_mm512_sqrt_ps(bits_as<__m512>(x)));
#elif defined(DVM_AVX2)
  return bits_as<F>(_mm256_sqrt_ps(bits_as<__m256>(x)));
#elif defined(DVM_X86)
  return bits_as<F>(_mm_sqrt_ps(bits_as<__m128>(x)));
#else
  for (int i = 0; i < kF; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

DVM_INLINE D sqrt_lanes(D x) {
#if defined(DVM_AVX512)
  return bits_as<D>(_mm512_sqrt_pd(bits_as<__m512d>(x)));
#elif defined(DVM_AVX2)
  return bits_as<D>(_mm256_sqrt_pd(bits_as<__m256d>(x)));
#elif defined(DVM_X86)
  return bits_as<D>(_mm_sqrt_pd(bits_as<__m128d>(x)));
#else
  for (int i = 0; i < kLanes<double>; i++) x[i] = __builtin_sqrt(x[i]);
  return x;
#endif
}

DVM_INLINE bool any(I mask) {
#if defined(DVM_AVX512)
  return _mm512_movepi32_mask(bits_as<__m512i>(mask)) != 0;
#elif defined(DVM_AVX2)
  return _mm256_movemask_ps(bits_as<__m256>(mask)) != 0;
#elif defined(DVM_X86)
  return _mm_movemask_ps(bits_as<__m128>(mask)) != 0;
#else
  int32_t either = 0;
  for (int i = 0; i < kF; i++) either |= mask[i];
  return either != 0;
#endif
}

template <class Function, class V, class... More>
[[gnu::noinline]] V by_element(Function function, V x, More... more) {
  for (int i = 0; i < kLanesOf<V>; i++) x[i] = function(x[i], more[i]...);
  return x;
}

// What f32 is too narrow for, half a vector at a time in f64.
template <class Function, class... V>
DVM_INLINE F in_wide_halves(Function function, V... x) {
  return join(convert<float>(function(convert<double>(low_half(x))...)),
              convert<float>(function(convert<double>(high_half(x))...)));
}

// Adding it to an f64 rounds to an integer, which the last bits then are: 1.5 * 2^52.
constexpr double kRoundWide = 6755399441055744.0;

// Bounds that let NaN through.
DVM_INLINE F at_most(F x, float bound) { return lesser_lanes(splat<F>(bound), x); }
DVM_INLINE F at_least(F x, float bound) { return greater_lanes(splat<F>(bound), x); }

}  // namespace
}  // namespace dvm::DVM_LEVEL
