// exp, erf, tanh and sigmoid of f32 lanes by polynomials that hold in ranges, for levels without
// the registers that pieces.h takes. Coefficients: fit_polynomials.py. Compiled per level: see
// simd.h.
#pragma once

#include "npu/host/lanes.h"

namespace dvm::DVM_LEVEL {
namespace {

// Coefficients, lowest power first; the relative error of the exact approximation stands beside.
constexpr float kExp[] = {0.4999999345f, 0.16666520677f, 0.041668387616f, 0.0083687110325f,
                          0.0013814601129f};  // 3.1e-9
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

// x * 2^n for |n| <= 256, in two exact steps and one rounding one.
DVM_INLINE F scale_by_power(F x, I n) {
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
  return scale_by_power(power, bits_as<I>(bits_as<U>(shifted) - bits_as<U>(splat<F>(kRound))));
}

DVM_INLINE F exp_lanes(F x) { return exp_in_range(at_least(at_most(x, kExpHigh), kExpLow)); }

DVM_INLINE F sigmoid_lanes(F x) {
  const F e = exp_in_range(at_least(-absolute(x), kExpLow));
  const F one = splat<F>(1.0f);
  return (x < F{} ? e : one) / (e + 1.0f);  // e is NaN where x is
}

// Inner: x + x^3 p(x^2). Outer: 1 - 2 / (e^2|x| + 1), whose rounding errors the 1 absorbs.
DVM_INLINE F tanh_lanes(F x) {
  const F magnitude = absolute(x);
  const F square = x * x;
  const F inner = multiply_add(magnitude * square, polynomial(square, kTanhInner), magnitude);
  const F doubled = at_most(magnitude + magnitude, kTanhLimit);
  const F outer = 1.0f - 2.0f / (exp_in_range(doubled) + 1.0f);
  return with_sign_of(magnitude < splat<F>(kTanhJoint) ? inner : outer, x);
}

// Inner: x p(x^2). Outer: 1 - e^p(|x|), the polynomial being ln(erfc).
DVM_INLINE F erf_lanes(F x) {
  const F magnitude = absolute(x);
  const F inner = x * polynomial(x * x, kErfInner);
  const F outer = 1.0f - exp_in_range(polynomial(at_most(magnitude, kErfLimit), kErfOuter));
  return magnitude < splat<F>(kErfJoint) ? inner : with_sign_of(outer, x);
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
