// Functions of f32 lanes: SIMD polynomials within 4 units in the last place, which
// tests/cpp/npu/test_math.cpp holds them to. Coefficients: fit_polynomials.py.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/lanes.h"

#if defined(DVM_AVX512)
#include "npu/host/pieces.h"
#else
#include "npu/host/ranges.h"
#endif

namespace dvm::DVM_LEVEL {
namespace {

// A vector by itself as a strip, or a strip as vectors, whichever way the level computes them.
#if defined(DVM_AVX512)
#define DVM_FUNCTION(name)         \
  DVM_INLINE F name##_lanes(F x) { \
    F strip[1] = {x};              \
    name##_strip(strip);           \
    return strip[0];               \
  }
#else
#define DVM_FUNCTION(name)                                                        \
  template <int K>                                                                \
  DVM_INLINE void name##_strip(F(&x)[K]) {                                        \
    each<K>([&](auto at) DVM_LAMBDA_INLINE { x[at.k] = name##_lanes(x[at.k]); }); \
  }
#endif
DVM_FUNCTION(exp)
DVM_FUNCTION(erf)
DVM_FUNCTION(tanh)
DVM_FUNCTION(sigmoid)
#undef DVM_FUNCTION

// Coefficients, lowest power first; the relative error of the exact approximation stands beside.
constexpr float kLog[] = {0.33333312595f,  -0.25000009617f, 0.20002119156f,
                          -0.16667995156f, 0.14219543046f,  -0.12405596997f,
                          0.11888233327f,  -0.11675624887f, 0.067464539142f};      // 7.5e-10
constexpr float kSin[] = {-0.16666654943f, 0.0083321780896f, -0.00019517292815f};  // 3.6e-9
constexpr float kCos[] = {0.041666646864f, -0.0013887367407f, 2.4438440717e-5f};   // 9.5e-11

// ln(x) = ln(m) + e ln(2) with m in [sqrt(1/2), sqrt(2)).
DVM_INLINE F log_lanes(F x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3;
  const F smallest_normal = splat<F>(0x1p-126f);
  const F scaled = x < smallest_normal ? x * 0x1p23f : x;
  const I exponent = bits_as<I>(bits_as<U>(scaled) - kRootHalf) >> 23;
  const F f = bits_as<F>(bits_as<U>(scaled) - (bits_as<U>(exponent) << 23)) - 1.0f;
  const F adjust = x < smallest_normal ? splat<F>(-23.0f) : F{};
  const F e = convert<float>(exponent) + adjust;
  const F square = f * f;
  F tail = f * square * polynomial(f, kLog);
  tail = tail + e * -2.12194440e-4f;
  tail = tail - 0.5f * square;
  F result = f + tail;
  result = result + e * 0.693359375f;
  result = x < splat<F>(__builtin_inff()) ? result : x;
  result = x < F{} ? splat<F>(__builtin_nanf("")) : result;
  return x == F{} ? splat<F>(-__builtin_inff()) : result;
}

// ln(u) * x / (u - 1) with u = 1 + x cancels the rounding error of u.
DVM_INLINE F log1p_lanes(F x) {
  const F u = x + 1.0f;
  const F difference = u - 1.0f;
  const F quotient = log_lanes(u) * (x / difference);
  const F result = difference == F{} ? x : quotient;
  return u == splat<F>(__builtin_inff()) ? u : result;
}

// The remainder of x / (pi/2) and the quotient's last bits, for half a vector, in f64: the 33-bit
// head of pi/2 times a quotient below 2^20 is exact.
struct Quadrant {
  Vec<float, kF / 2> remainder;
  Vec<int32_t, kF / 2> quotient;
};
DVM_INLINE Quadrant reduce_quadrant(Vec<float, kF / 2> x) {
  using D = Vec<double, kF / 2>;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  const D wide = convert<double>(x);
  const D shifted = wide * 0.63661977236758134308 + kRound;
  const D n = shifted - kRound;
  const D r = wide - n * 0x1.921fb544p+0 - n * 0x1.0b4611a626331p-34;
  return {convert<float>(r), convert<int32_t>(bits_as<Vec<int64_t, kF / 2>>(shifted))};
}

constexpr float kQuadrantLimit = 1 << 20;

// sin(x + shift * pi/2) for |x| < kQuadrantLimit.
DVM_INLINE F sine_lanes(F x, uint32_t shift) {
  const Quadrant low = reduce_quadrant(low_half(x)), high = reduce_quadrant(high_half(x));
  const F r = join(low.remainder, high.remainder);
  const U quadrant = bits_as<U>(join(low.quotient, high.quotient)) + shift;
  const F square = r * r;
  const F sine = r + r * square * polynomial(square, kSin);
  const F cosine = square * square * polynomial(square, kCos) + (1.0f - 0.5f * square);
  const F chosen = (quadrant & 1) != 0 ? cosine : sine;
  return bits_as<F>(bits_as<U>(chosen) ^ ((quadrant & 2) << 30));
}

DVM_INLINE F sin_lanes(F x) {
  if (any(~(absolute(x) < splat<F>(kQuadrantLimit)))) [[unlikely]]
    return by_element(x, [](float v) { return __builtin_sinf(v); });
  const F result = sine_lanes(x, 0);
  return x == F{} ? x : result;  // keeps the sign of zero
}
DVM_INLINE F cos_lanes(F x) {
  if (any(~(absolute(x) < splat<F>(kQuadrantLimit)))) [[unlikely]]
    return by_element(x, [](float v) { return __builtin_cosf(v); });
  return sine_lanes(x, 1);
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
