// What every element-wise instruction means, one element at a time, independent of npu/host: wide
// arithmetic (long double, 128-bit integers) and libm. `tolerance` is the allowed error in units in
// the last place; 0 demands the same bits (any NaN equals any NaN).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "vm/isa.h"

namespace dvm::test {

using Wide = long double;

template <class T>
constexpr bool kFloating = std::is_floating_point_v<T>;

// Error of `got` in units in the last place of T at `expected`; infinite where one of them is NaN
// or infinite and the other is not.
template <class T>
double ulp_error(T got, Wide expected) {
  const T rounded = static_cast<T>(expected);
  if (std::isnan(expected) || std::isnan(got)) {
    return std::isnan(expected) == std::isnan(got) ? 0 : INFINITY;
  }
  if (got == rounded) return 0;
  const Wide largest = std::numeric_limits<T>::max();
  if (std::isinf(got) || std::isinf(rounded)) {
    // The largest finite value may be taken for infinity and the other way round.
    if (std::isinf(expected) || (got > 0) != (expected > 0)) return INFINITY;
    const Wide other = std::isinf(got) ? std::fabs(expected) : std::fabs(static_cast<Wide>(got));
    return other > largest * (1 - 8 * static_cast<Wide>(std::numeric_limits<T>::epsilon()))
               ? 1
               : INFINITY;
  }
  int exponent;
  std::frexp(rounded == 0 ? std::numeric_limits<T>::min() : rounded, &exponent);
  const int lowest = std::numeric_limits<T>::min_exponent;
  const int digits = std::numeric_limits<T>::digits;
  const Wide ulp = std::ldexp(Wide{1}, (exponent < lowest ? lowest : exponent) - digits);
  return static_cast<double>(std::fabs(static_cast<Wide>(got) - expected) / ulp);
}

inline double tolerance_of(Family family, DType dtype) {
  if (family == Family::v_rsqrt) return 1.5;
  const bool math =
      (family >= Family::v_exp && family <= Family::v_sigmoid) || family == Family::v_pow;
  if (!math || (dtype != DType::f32 && dtype != DType::f64)) return 0;
  return 4;
}

__extension__ typedef __int128 int128_t;  // not in ISO C++

template <class T>
T wrap(int128_t x) {
  return static_cast<T>(static_cast<std::make_unsigned_t<T>>(x));
}

template <class T>
Wide float_unary(Family family, T value) {
  const Wide x = value;
  switch (family) {
    case Family::v_abs: return std::fabs(x);
    case Family::v_neg: return -x;
    case Family::v_sign: return std::isnan(x) ? x : static_cast<Wide>((x > 0) - (x < 0));
    case Family::v_sqrt: return std::sqrt(value);  // rounded once, in T
    case Family::v_rsqrt: return 1 / std::sqrt(x);
    case Family::v_reciprocal: return T{1} / value;
    case Family::v_exp: return std::exp(x);
    case Family::v_log: return std::log(x);
    case Family::v_log1p: return std::log1p(x);
    case Family::v_sin: return std::sin(x);
    case Family::v_cos: return std::cos(x);
    case Family::v_tan: return std::tan(x);
    case Family::v_asin: return std::asin(x);
    case Family::v_acos: return std::acos(x);
    case Family::v_atan: return std::atan(x);
    case Family::v_sinh: return std::sinh(x);
    case Family::v_cosh: return std::cosh(x);
    case Family::v_asinh: return std::asinh(x);
    case Family::v_acosh: return std::acosh(x);
    case Family::v_atanh: return std::atanh(x);
    case Family::v_erf: return std::erf(x);
    case Family::v_tanh: return std::tanh(x);
    case Family::v_sigmoid: return 1 / (1 + std::exp(-x));
    case Family::v_floor: return std::floor(x);
    case Family::v_ceil: return std::ceil(x);
    case Family::v_round: return std::nearbyint(x);
    case Family::v_trunc: return std::trunc(x);
    default: return x;
  }
}

template <class T>
T integer_unary(Family family, T x) {
  const int128_t wide = x;
  switch (family) {
    case Family::v_abs: return wrap<T>(wide < 0 ? -wide : wide);
    case Family::v_neg: return wrap<T>(-wide);
    case Family::v_sign: return static_cast<T>((x > 0) - (x < 0));
    case Family::v_logical_not: return x == 0;
    case Family::v_bitwise_not: return static_cast<T>(~x);
    default: return x;
  }
}

template <class T>
Wide float_binary(Family family, T left, T right) {
  const Wide a = left, b = right;
  switch (family) {
    case Family::v_add: return static_cast<T>(left + right);  // rounded once, in T
    case Family::v_sub: return static_cast<T>(left - right);
    case Family::v_mul: return static_cast<T>(left * right);
    case Family::v_div: return static_cast<T>(left / right);
    case Family::v_fmod: return std::fmod(a, b);
    case Family::v_mod: {
      const T remainder = std::fmod(left, right);  // exact; the sum is rounded once, in T
      return remainder != 0 && (remainder < 0) != (right < 0) ? remainder + right : remainder;
    }
    case Family::v_pow: return std::pow(a, b);
    case Family::v_min: return std::isnan(a) || std::isnan(b) ? Wide(NAN) : (a < b ? a : b);
    case Family::v_max: return std::isnan(a) || std::isnan(b) ? Wide(NAN) : (a > b ? a : b);
    default: return NAN;
  }
}

template <class T>
T integer_power(T base, T exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    return base == -1 ? ((exponent & 1) != 0 ? -1 : 1) : 0;
  }
  T result = 1;
  for (T i = 0; i < exponent; i++) result = wrap<T>(static_cast<int128_t>(result) * base);
  return result;
}

template <class T>
T integer_binary(Family family, T a, T b) {
  const int128_t wide_a = a, wide_b = b;
  const T bits = static_cast<T>(sizeof(T) * 8);
  switch (family) {
    case Family::v_add: return wrap<T>(wide_a + wide_b);
    case Family::v_sub: return wrap<T>(wide_a - wide_b);
    case Family::v_mul: return wrap<T>(wide_a * wide_b);
    case Family::v_div: return b == 0 ? T{0} : wrap<T>(wide_a / wide_b);
    case Family::v_fmod: return b == 0 ? T{0} : wrap<T>(wide_a % wide_b);
    case Family::v_mod: return b == 0 ? T{0} : wrap<T>(((wide_a % wide_b) + wide_b) % wide_b);
    case Family::v_pow: return integer_power(a, b);
    case Family::v_min: return a < b ? a : b;
    case Family::v_max: return a > b ? a : b;
    case Family::v_bitwise_and: return static_cast<T>(a & b);
    case Family::v_bitwise_or: return static_cast<T>(a | b);
    case Family::v_bitwise_xor: return static_cast<T>(a ^ b);
    case Family::v_shift_left: return b < 0 || b >= bits ? T{0} : wrap<T>(wide_a << b);
    case Family::v_shift_right:
      return b < 0 || b >= bits ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(wide_a >> b);
    default: return 0;
  }
}

template <class T>
bool compare(Family family, T a, T b) {
  switch (family) {
    case Family::v_eq: return a == b;
    case Family::v_ne: return a != b;
    case Family::v_lt: return a < b;
    case Family::v_le: return a <= b;
    case Family::v_gt: return a > b;
    default: return a >= b;
  }
}

}  // namespace dvm::test
