// Functions of f32 lanes: SIMD polynomials within 4 units in the last place, which
// tests/cpp/npu/test_math.cpp holds them to. Coefficients: fit_polynomials.py.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"

namespace dvm::DVM_LEVEL {
namespace {

using F = Full<float>;
using I = Full<int32_t>;
using U = Full<uint32_t>;  // for arithmetic on bits that may wrap
constexpr int kF = kLanes<float>;

// Coefficients, lowest power first; the relative error of the exact approximation stands beside.
constexpr float kExp[] = {0.4999999345f, 0.16666520677f, 0.041668387616f, 0.0083687110325f,
                          0.0013814601129f};  // 3.1e-9
constexpr float kLog[] = {0.33333312595f,  -0.25000009617f, 0.20002119156f,
                          -0.16667995156f, 0.14219543046f,  -0.12405596997f,
                          0.11888233327f,  -0.11675624887f, 0.067464539142f};      // 7.5e-10
constexpr float kSin[] = {-0.16666654943f, 0.0083321780896f, -0.00019517292815f};  // 3.6e-9
constexpr float kCos[] = {0.041666646864f, -0.0013887367407f, 2.4438440717e-5f};   // 9.5e-11
constexpr float kTanhInner[] = {-0.33333281932f, 0.13331441965f, -0.053739698223f, 0.020639038191f,
                                -0.0057049371725f};  // 4.4e-9
constexpr float kTanhJoint = 0.625f;                 // the polynomial holds below
constexpr float kTanhLimit = 20.0f;                  // tanh rounds to 1 from half of it on
constexpr float kErfInner[] = {1.1283791657f,    -0.37612625822f,  0.11283585121f,
                               -0.026853810771f, 0.0051883254743f, -0.00080101742021f,
                               7.8537972374e-5f};  // 1.2e-9
constexpr float kErfOuter[] = {-0.002671503878f, -1.1174392051f,  -0.65448791385f,
                               -0.088634899193f, 0.014778369308f, -0.00115045569f};  // 1.9e-8
constexpr float kErfJoint = 1.0f, kErfLimit = 4.0f;  // erf rounds to 1 from the limit on

#if defined(DVM_AVX512)
// Of erf(x)/x around multiples of 1/4, a column each.
constexpr float kErfPieces[][16] = {
    // 2.4e-9
    {1.1283791671f, 1.1053055585f, 1.0409997556f, 0.94820751326f, 0.84270079498f, 0.73832010381f,
     0.64407009783f, 0.56381238315f, 0.49766113201f, 0.44379434785f, 0.39983721904f, 0.36359977381f,
     0.33332596984f, 0.30769098378f, 0.28571407342f, 0.26666663635f},
    {-2.826527662e-8f, -0.18116572063f, -0.32443434883f, -0.40703524912f, -0.42759329177f,
     -0.40143918455f, -0.35009320805f, -0.29202136647f, -0.23849707448f, -0.19406756857f,
     -0.15906357377f, -0.13200490767f, -0.11106223884f, -0.094665167578f, -0.081631049699f,
     -0.071110867975f},
    {-0.37612374699f, -0.33534871057f, -0.22991387486f, -0.10021938498f, 0.012483460894f,
     0.084628836365f, 0.11446497554f, 0.11409482532f, 0.098582125682f, 0.079110322298f,
     0.061447323186f, 0.047415555045f, 0.036881487055f, 0.029098535751f, 0.023317740541f,
     0.018962004448f},
    {-9.03547848e-5f, 0.10471964565f, 0.16689790985f, 0.16933916248f, 0.12588260983f,
     0.066325117117f, 0.016192280958f, -0.013677625211f, -0.025179103467f, -0.025504701284f,
     -0.021238955782f, -0.016238310122f, -0.012030832787f, -0.0088931616916f, -0.006650132012f,
     -0.0050544105651f},
    {0.11423581719f, 0.088606360318f, 0.032359726955f, -0.024532243024f, -0.056299346977f,
     -0.057749993173f, -0.040491629464f, -0.019751361984f, -0.0047310029616f, 0.0027875214231f,
     0.0050162509739f, 0.0047119346792f, 0.0036632146238f, 0.0026514456613f, 0.0018836080182f,
     0.0013462423065f},
    {-0.009985550136f, -0.035678341042f, -0.049778197501f, -0.037618828468f, -0.012478642546f,
     0.008525958669f, 0.016984375919f, 0.014965531228f, 0.0088579273577f, 0.0034885769402f,
     0.00044716381984f, -0.00070399878455f, -0.00087817129517f, -0.00071763700325f,
     -0.00051418915822f, -0.00035396204093f},
};
constexpr float kErfPiecesLimit = 3.84f;  // the last piece rounds to 1 there, and to no more below
#endif

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

template <int N>
DVM_INLINE F polynomial(F x, const float (&coefficients)[N]) {
  F sum = splat<F>(coefficients[N - 1]);
  for (int i = N - 2; i >= 0; i--) sum = multiply_add(sum, x, splat<F>(coefficients[i]));
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
#elif defined(__x86_64__)
  return bits_as<F>(_mm_sqrt_ps(bits_as<__m128>(x)));
#else
  for (int i = 0; i < kF; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

DVM_INLINE bool any(I mask) {
#if defined(DVM_AVX512)
  return _mm512_movepi32_mask(bits_as<__m512i>(mask)) != 0;
#elif defined(DVM_AVX2)
  return _mm256_movemask_ps(bits_as<__m256>(mask)) != 0;
#elif defined(__x86_64__)
  return _mm_movemask_ps(bits_as<__m128>(mask)) != 0;
#else
  int32_t either = 0;
  for (int i = 0; i < kF; i++) either |= mask[i];
  return either != 0;
#endif
}

template <class Function>
[[gnu::noinline]] F by_element(F x, Function function) {
  for (int i = 0; i < kF; i++) x[i] = function(x[i]);
  return x;
}

// x * 2^n for |n| <= 256, in two exact steps and one rounding one.
[[maybe_unused]] DVM_INLINE F scale_by_power(F x, I n) {
  const U half = bits_as<U>(n >> 1), rest = bits_as<U>(n) - half;
  const F first = bits_as<F>((half + 127) << 23), second = bits_as<F>((rest + 127) << 23);
  return x * first * second;
}

// e^x = 2^n e^r with |r| <= ln(2)/2, for x in [kExpLow, kExpHigh] or NaN.
constexpr float kExpLow = -104.5f, kExpHigh = 89.0f;  // beyond them e^x is 0 or infinite
DVM_INLINE F exp_in_range(F x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const F shifted = multiply_add(x, splat<F>(1.44269504088896341f), splat<F>(kRound));
  const F n = shifted - kRound;
  const F nearly = multiply_add(n, splat<F>(-0.693359375f), x);
  const F r = multiply_add(n, splat<F>(2.12194440e-4f), nearly);
  const F power = multiply_add(r * r, polynomial(r, kExp), r) + 1.0f;
#if defined(DVM_AVX512)
  return bits_as<F>(_mm512_scalef_ps(bits_as<__m512>(power), bits_as<__m512>(n)));
#else
  return scale_by_power(power, bits_as<I>(bits_as<U>(shifted) - bits_as<U>(splat<F>(kRound))));
#endif
}

// Bounds that let NaN through.
DVM_INLINE F at_most(F x, float bound) { return lesser_lanes(splat<F>(bound), x); }
DVM_INLINE F at_least(F x, float bound) { return greater_lanes(splat<F>(bound), x); }

DVM_INLINE F exp_lanes(F x) { return exp_in_range(at_least(at_most(x, kExpHigh), kExpLow)); }

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

DVM_INLINE F sigmoid_lanes(F x) {
  const F e = exp_in_range(at_least(-absolute(x), kExpLow));
  const F one = splat<F>(1.0f);
  return (x < F{} ? e : one) / (e + 1.0f);  // e is NaN where x is
}

// Inner: x + x^3 p(x^2). Outer: 1 - 2 / (e^2|x| + 1), whose rounding errors the 1 absorbs.
DVM_INLINE F tanh_lanes(F x) {
  const F magnitude = absolute(x);
  const F square = x * x;
  const F inner = multiply_add(x * square, polynomial(square, kTanhInner), x);
  const F doubled = at_most(magnitude + magnitude, kTanhLimit);
  const F outer = 1.0f - 2.0f / (exp_in_range(doubled) + 1.0f);
  return magnitude < splat<F>(kTanhJoint) ? inner : with_sign_of(outer, x);
}

#if defined(DVM_AVX512)
// |x| p(|x| - c) with the polynomial of the piece around c, whose coefficients are looked up in
// registers: half the work of two ranges that are both computed.
DVM_INLINE F erf_lanes(F x) {
  constexpr float kRound = 3145728.0f;  // 1.5 * 2^21: adding it rounds to a multiple of 1/4
  constexpr int kPowers = sizeof kErfPieces / sizeof kErfPieces[0];
  const F magnitude = at_most(absolute(x), kErfPiecesLimit);
  const F shifted = magnitude + kRound;
  const F d = magnitude - (shifted - kRound);
  const auto coefficients = [&](int power) DVM_LAMBDA_INLINE {  // by the last bits of the multiple
    return bits_as<F>(_mm512_permutexvar_ps(bits_as<__m512i>(shifted),
                                            bits_as<__m512>(load<F>(kErfPieces[power]))));
  };
  F sum = coefficients(kPowers - 1);
  for (int i = kPowers - 2; i >= 0; i--) sum = multiply_add(sum, d, coefficients(i));
  return with_sign_of(sum * magnitude, x);
}
#else
// Inner: x p(x^2). Outer: 1 - e^p(|x|), the polynomial being ln(erfc).
DVM_INLINE F erf_lanes(F x) {
  const F magnitude = absolute(x);
  const F inner = x * polynomial(x * x, kErfInner);
  const F outer = 1.0f - exp_in_range(polynomial(at_most(magnitude, kErfLimit), kErfOuter));
  return magnitude < splat<F>(kErfJoint) ? inner : with_sign_of(outer, x);
}
#endif

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
