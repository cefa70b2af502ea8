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
constexpr float kAsin[] = {0.16666752483f, 0.074952976939f, 0.045470364684f, 0.024179583769f,
                           0.042166177681f};  // 4.9e-9
constexpr float kAtan[] = {-0.33333299073f,  0.19998547789f,   -0.14264236368f,
                           0.10952157897f,   -0.084033688666f, 0.057956201085f,
                           -0.031176461716f, 0.010913864811f,  -0.0017934565892f};  // 2.6e-9
constexpr float kSinh[] = {0.16666667017f, 0.0083333201165f, 0.00019842860815f, 2.747485087e-6f,
                           2.6966576555e-8f};  // 2.8e-10
constexpr double kArtanh[] = {0.33333332824, 0.20000167284, 0.14268672625,
                              0.11790750182};  // 4.8e-12
constexpr double kPower[] = {0.6931471807,    0.24022651067,    0.055504103659, 0.0096180381277,
                             0.0013333935118, 0.00015466757476, 1.5196143173e-5};  // 4.7e-11

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
  const D wide = convert<double>(x);
  const D shifted = wide * 0.63661977236758134308 + kRoundWide;
  const D n = shifted - kRoundWide;
  const D r = wide - n * 0x1.921fb544p+0 - n * 0x1.0b4611a626331p-34;
  return {convert<float>(r), convert<int32_t>(bits_as<Vec<int64_t, kF / 2>>(shifted))};
}

constexpr float kQuadrantLimit = 1 << 20;

struct Turn {
  F sine, cosine;  // of the remainder
  U quadrant;
};
// For |x| < kQuadrantLimit.
DVM_INLINE Turn turn_lanes(F x) {
  const Quadrant low = reduce_quadrant(low_half(x)), high = reduce_quadrant(high_half(x));
  const F r = join(low.remainder, high.remainder);
  const F square = r * r;
  return {r + r * square * polynomial(square, kSin),
          square * square * polynomial(square, kCos) + (1.0f - 0.5f * square),
          bits_as<U>(join(low.quotient, high.quotient))};
}

// sin(x + shift * pi/2) for |x| < kQuadrantLimit.
DVM_INLINE F sine_lanes(F x, uint32_t shift) {
  const Turn turn = turn_lanes(x);
  const U quadrant = turn.quadrant + shift;
  const F chosen = (quadrant & 1) != 0 ? turn.cosine : turn.sine;
  return bits_as<F>(bits_as<U>(chosen) ^ ((quadrant & 2) << 30));
}

// Results of turns; beyond the limit, and of NaN, libm's. None hangs on what its neighbours are.
template <class Function>
DVM_INLINE F or_libm(F x, F result, Function libm) {
  const I beyond = ~(absolute(x) < splat<F>(kQuadrantLimit));
  if (any(beyond)) [[unlikely]]
    return beyond ? by_element(libm, x) : result;
  return result;
}

DVM_INLINE F sin_lanes(F x) {
  const F result = x == F{} ? x : sine_lanes(x, 0);  // keeps the sign of zero
  return or_libm(x, result, [](float v) { return __builtin_sinf(v); });
}
DVM_INLINE F cos_lanes(F x) {
  return or_libm(x, sine_lanes(x, 1), [](float v) { return __builtin_cosf(v); });
}

// tan(r) of even quadrants, -1 / tan(r) of odd ones.
DVM_INLINE F tan_lanes(F x) {
  const Turn turn = turn_lanes(x);
  const auto odd = (turn.quadrant & 1) != 0;
  const F ratio = (odd ? turn.cosine : turn.sine) / (odd ? turn.sine : turn.cosine);
  const F signed_ratio = bits_as<F>(bits_as<U>(ratio) ^ (turn.quadrant << 31));
  const F result = x == F{} ? x : signed_ratio;  // keeps the sign of zero
  return or_libm(x, result, [](float v) { return __builtin_tanf(v); });
}

// quarters pi/2 + (head + tail), where the head is the larger part.
DVM_INLINE F turned(F quarters, F head, F tail) {
  constexpr float kHalfPi = 1.57079637050628662f, kRest = -4.37113900018624283e-8f;
  return multiply_add(quarters, splat<F>(kHalfPi), head) +
         multiply_add(quarters, splat<F>(kRest), tail);
}

// quarters pi/2 + factor asin(x) with |x| <= 1/2; the factor is a power of 2.
DVM_INLINE F turned_arcsine(F quarters, F factor, F x) {
  const F square = x * x, head = factor * x;
  return turned(quarters, head, head * square * polynomial(square, kAsin));
}

// Beyond 1/2 by the half angle: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)), whose root is NaN
// beyond 1.
DVM_INLINE F asin_lanes(F x) {
  const F magnitude = absolute(x), none = F{};
  const auto outer = magnitude > 0.5f;
  const F root = sqrt_lanes(0.5f - 0.5f * magnitude);
  const F result =
      turned_arcsine(outer ? splat<F>(1.0f) : none, outer ? splat<F>(-2.0f) : splat<F>(1.0f),
                     outer ? root : magnitude);
  return with_sign_of(result, x);
}
// pi/2 - asin(x): 2 asin(root) where x > 1/2, pi - 2 asin(root) where x < -1/2.
DVM_INLINE F acos_lanes(F x) {
  const F magnitude = absolute(x), one = splat<F>(1.0f), two = splat<F>(2.0f);
  const auto outer = magnitude > 0.5f, negative = x < F{};
  const F root = sqrt_lanes(0.5f - 0.5f * magnitude);
  const F outer_quarters = negative ? two : F{}, outer_factor = negative ? -two : two;
  return turned_arcsine(outer ? outer_quarters : one, outer ? outer_factor : -one,
                        outer ? root : x);
}

// Beyond 1 as pi/2 - atan(1 / x).
DVM_INLINE F atan_lanes(F x) {
  const F magnitude = absolute(x), one = splat<F>(1.0f);
  const auto outer = magnitude > one;
  const F z = (outer ? -one : magnitude) / (outer ? magnitude : one);
  const F square = z * z;
  const F result = turned(outer ? one : F{}, z, z * square * polynomial(square, kAtan));
  return with_sign_of(result, x);
}

// e^x / 2 for x >= 0, finite where sinh and cosh are: e^(x - kLn2) times what kLn2 is too large by.
// It has so few bits that the difference is exact from 1 on.
DVM_INLINE F half_exp_lanes(F x) {
  constexpr float kLn2 = 0.6931610107421875f, kExcess = 1.38302779e-5f;
  const F power = exp_lanes(x - kLn2);
  return multiply_add(power, splat<F>(kExcess), power);
}

// Inner: x + x^3 p(x^2). Outer: what is subtracted is small enough not to show errors of the rest.
DVM_INLINE F sinh_lanes(F x) {
  constexpr float kJoint = 2.0f;
  const F magnitude = absolute(x), square = x * x;
  const F inner = multiply_add(magnitude * square, polynomial(square, kSinh), magnitude);
  const F half = half_exp_lanes(magnitude);
  return with_sign_of(magnitude < splat<F>(kJoint) ? inner : half - 0.25f / half, x);
}
DVM_INLINE F cosh_lanes(F x) {
  const F half = half_exp_lanes(absolute(x));
  return at_least(half + 0.25f / half, 1.0f);
}

// ln(x) = e ln(2) + 2 artanh((m - 1) / (m + 1)) with m in [sqrt(1/2), sqrt(2)), for x that are no
// denormals of f64, which no f32 is: relative error 5e-12.
DVM_INLINE D log_wide(D x) {
  using Bits = Vec<uint64_t, kF / 2>;
  constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000;
  constexpr double kInteger = 0x1p52;  // whose last bits are an integer added to it
  const Bits bits = bits_as<Bits>(x), biased = (bits - kRootHalf + kOne) >> 52;
  const D m = bits_as<D>(bits - (biased << 52) + kOne);
  const D e = bits_as<D>(biased | bits_as<Bits>(splat<D>(kInteger))) - (kInteger + 1023);
  const D s = (m - 1.0) / (m + 1.0), square = s * s;
  D result = s * square * polynomial(square, kArtanh) + s;
  result = e * 0.69314718055994531 + 2.0 * result;
  result = x < splat<D>(__builtin_inf()) ? result : x;
  result = x < D{} ? splat<D>(__builtin_nan("")) : result;
  return x == D{} ? splat<D>(-__builtin_inf()) : result;
}

constexpr float kLinear = 0x1p-13f;  // below, arsinh(x) and artanh(x) are x

DVM_INLINE F asinh_lanes(F x) {
  const F magnitude = absolute(x);
  const F result = in_wide_halves(
      [](D a) DVM_LAMBDA_INLINE { return log_wide(a + sqrt_lanes(a * a + 1.0)); }, magnitude);
  return with_sign_of(magnitude < splat<F>(kLinear) ? magnitude : result, x);
}
DVM_INLINE F acosh_lanes(F x) {
  const F result = in_wide_halves(
      [](D a) DVM_LAMBDA_INLINE { return log_wide(a + sqrt_lanes(a * a - 1.0)); }, x);
  return x < splat<F>(1.0f) ? splat<F>(__builtin_nanf("")) : result;
}
DVM_INLINE F atanh_lanes(F x) {
  const F magnitude = absolute(x);
  const F result = in_wide_halves(
      [](D a) DVM_LAMBDA_INLINE { return 0.5 * log_wide((1.0 + a) / (1.0 - a)); }, magnitude);
  return with_sign_of(magnitude < splat<F>(kLinear) ? magnitude : result, x);
}

// 2^x = 2^n 2^r with |r| <= 1/2, for |x| < 1000 or NaN: relative error 5e-11.
DVM_INLINE D exp2_wide(D x) {
  const D shifted = x + kRoundWide, r = x - (shifted - kRoundWide);
  const D power = r * polynomial(r, kPower) + 1.0;
  return power * bits_as<D>((bits_as<Vec<uint64_t, kF / 2>>(shifted) + 1023) << 52);
}

// |x|^y = 2^(y log2|x|), with the sign of x where y is odd. What is exact in f32 is so here.
DVM_INLINE F pow_lanes(F x, F y) {
  constexpr double kMost = 200.0;   // powers of f32 are infinite or 0 before
  constexpr float kEven = 0x1p24f;  // from there on
  const F magnitude = absolute(x), one = splat<F>(1.0f), infinity = splat<F>(__builtin_inff());
  F power = in_wide_halves(
      [](D base, D exponent) DVM_LAMBDA_INLINE {
        D sum = exponent * (log_wide(base) * 1.4426950408889634);
        sum = sum > kMost ? splat<D>(kMost) : sum;
        sum = sum < -kMost ? splat<D>(-kMost) : sum;
        return exp2_wide(sum);
      },
      magnitude, y);
  power = (magnitude == one) & (y == y) ? one : power;  // of -1, and so of what is infinite

  const F bounded = absolute(y) < splat<F>(kEven) ? y : F{};
  const I integer = convert<int32_t>(bounded), whole = convert<float>(integer) == bounded;
  power = with_sign_of(power, bits_as<F>(bits_as<I>(x) & whole & (integer << 31)));
  const I undefined = ~whole & (x < F{}) & (magnitude < infinity);
  power = undefined ? splat<F>(__builtin_nanf("")) : power;
  return (x == one) | (y == F{}) ? one : power;  // of and by NaN, too
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
