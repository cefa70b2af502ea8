#include "scalar.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace dvm::reference {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double value;
  if (exponent == 31) {
    value = mantissa ? NAN : INFINITY;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(mantissa + 1024, exponent - 25);
  }
  return bits & 0x8000 ? -value : value;
}

uint16_t half_bits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  value = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (value == 0) return sign;
  if (value >= 65520) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int scale = exponent < -13 ? 24 : 11 - exponent;
  const auto mantissa = static_cast<int>(std::nearbyint(std::ldexp(value, scale)));
  if (exponent < -13) return static_cast<uint16_t>(sign | mantissa);
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + mantissa - 1024));
}

double bfloat_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

uint16_t bfloat_bits(double value) {
  const auto single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  if (std::isnan(single)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

Scalar real(double value) { return {value, 0}; }
Scalar integer(int64_t value) { return {0, value}; }

int64_t wrap(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::i32: return static_cast<int32_t>(value);
    case DType::i8: return static_cast<int8_t>(value);
    case DType::u8: return static_cast<uint8_t>(value);
    case DType::i16: return static_cast<int16_t>(value);
    case DType::u16: return static_cast<uint16_t>(value);
    case DType::u32: return static_cast<uint32_t>(value);
    case DType::b8: return static_cast<uint8_t>(value);
    default: return value;
  }
}

Scalar real_unary(PlanOp op, double x) {
  switch (op) {
    case PlanOp::abs_: return real(std::fabs(x));
    case PlanOp::neg_: return real(-x);
    case PlanOp::sign_: return real(std::isnan(x) ? x : (x > 0) - (x < 0));
    case PlanOp::sqrt_: return real(std::sqrt(x));
    case PlanOp::rsqrt_: return real(1 / std::sqrt(x));
    case PlanOp::reciprocal_: return real(1 / x);
    case PlanOp::exp_: return real(std::exp(x));
    case PlanOp::log_: return real(std::log(x));
    case PlanOp::log1p_: return real(std::log1p(x));
    case PlanOp::sin_: return real(std::sin(x));
    case PlanOp::cos_: return real(std::cos(x));
    case PlanOp::tan_: return real(std::tan(x));
    case PlanOp::asin_: return real(std::asin(x));
    case PlanOp::acos_: return real(std::acos(x));
    case PlanOp::atan_: return real(std::atan(x));
    case PlanOp::sinh_: return real(std::sinh(x));
    case PlanOp::cosh_: return real(std::cosh(x));
    case PlanOp::asinh_: return real(std::asinh(x));
    case PlanOp::acosh_: return real(std::acosh(x));
    case PlanOp::atanh_: return real(std::atanh(x));
    case PlanOp::erf_: return real(std::erf(x));
    case PlanOp::tanh_: return real(std::tanh(x));
    case PlanOp::sigmoid_: return real(1 / (1 + std::exp(-x)));
    case PlanOp::floor_: return real(std::floor(x));
    case PlanOp::ceil_: return real(std::ceil(x));
    case PlanOp::round_: return real(std::nearbyint(x));
    case PlanOp::trunc_: return real(std::trunc(x));
    case PlanOp::isnan_: return integer(std::isnan(x));
    case PlanOp::isinf_: return integer(std::isinf(x));
    case PlanOp::isfinite_: return integer(std::isfinite(x));
    default: throw std::invalid_argument("no such unary operator");
  }
}

Scalar real_binary(PlanOp op, double a, double b) {
  const bool nan = std::isnan(a) || std::isnan(b);
  switch (op) {
    case PlanOp::add_: return real(a + b);
    case PlanOp::sub_: return real(a - b);
    case PlanOp::mul_: return real(a * b);
    case PlanOp::div_: return real(a / b);
    case PlanOp::mod_: return real(a - std::floor(a / b) * b);
    case PlanOp::fmod_: return real(std::fmod(a, b));
    case PlanOp::pow_: return real(std::pow(a, b));
    case PlanOp::min_: return real(nan ? NAN : std::fmin(a, b));
    case PlanOp::max_: return real(nan ? NAN : std::fmax(a, b));
    case PlanOp::eq_: return integer(a == b);
    case PlanOp::ne_: return integer(a != b);
    case PlanOp::lt_: return integer(a < b);
    case PlanOp::le_: return integer(a <= b);
    case PlanOp::gt_: return integer(a > b);
    case PlanOp::ge_: return integer(a >= b);
    default: return real_unary(op, a);
  }
}

int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (; exponent > 0; exponent >>= 1, factor *= factor) {
    if (exponent & 1) result *= factor;
  }
  return static_cast<int64_t>(result);
}

int64_t wrapping(PlanOp op, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (op) {
    case PlanOp::add_: return static_cast<int64_t>(x + y);
    case PlanOp::sub_: return static_cast<int64_t>(x - y);
    case PlanOp::mul_: return static_cast<int64_t>(x * y);
    default: return static_cast<int64_t>(x << (y & 63));
  }
}

int64_t integer_binary(PlanOp op, int64_t a, int64_t b) {
  switch (op) {
    case PlanOp::add_:
    case PlanOp::sub_:
    case PlanOp::mul_:
    case PlanOp::shift_left_: return wrapping(op, a, b);
    case PlanOp::div_: return b == 0 ? 0 : b == -1 ? wrapping(PlanOp::sub_, 0, a) : a / b;
    case PlanOp::fmod_: return b == 0 || b == -1 ? 0 : a % b;
    case PlanOp::mod_: {
      const int64_t rest = b == 0 || b == -1 ? 0 : a % b;
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    case PlanOp::pow_: return integer_power(a, b);
    case PlanOp::min_: return a < b ? a : b;
    case PlanOp::max_: return a > b ? a : b;
    case PlanOp::bitwise_and_: return a & b;
    case PlanOp::bitwise_or_: return a | b;
    case PlanOp::bitwise_xor_: return a ^ b;
    case PlanOp::shift_right_: return a >> (b & 63);
    case PlanOp::eq_: return a == b;
    case PlanOp::ne_: return a != b;
    case PlanOp::lt_: return a < b;
    case PlanOp::le_: return a <= b;
    case PlanOp::gt_: return a > b;
    case PlanOp::ge_: return a >= b;
    case PlanOp::abs_: return a < 0 ? wrapping(PlanOp::sub_, 0, a) : a;
    case PlanOp::neg_: return wrapping(PlanOp::sub_, 0, a);
    case PlanOp::sign_: return (a > 0) - (a < 0);
    case PlanOp::logical_not_: return a == 0;
    case PlanOp::bitwise_not_: return ~a;
    default: throw std::invalid_argument("no such integer operator");
  }
}

}  // namespace

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

Scalar read(DType storage, const std::byte* from) {
  switch (storage) {
    case DType::f32: return real(load<float>(from));
    case DType::f64: return real(load<double>(from));
    case DType::f16: return real(half_value(load<uint16_t>(from)));
    case DType::bf16: return real(bfloat_value(load<uint16_t>(from)));
    case DType::i32: return integer(load<int32_t>(from));
    case DType::b8:
    case DType::u8: return integer(load<uint8_t>(from));
    case DType::i8: return integer(load<int8_t>(from));
    case DType::i16: return integer(load<int16_t>(from));
    case DType::u16: return integer(load<uint16_t>(from));
    case DType::u32: return integer(load<uint32_t>(from));
    default: return integer(load<int64_t>(from));
  }
}

void write(DType storage, std::byte* to, Scalar value) {
  switch (storage) {
    case DType::f32: return store(to, static_cast<float>(value.real));
    case DType::f64: return store(to, value.real);
    case DType::f16: return store(to, half_bits(value.real));
    case DType::bf16: return store(to, bfloat_bits(value.real));
    default: std::memcpy(to, &value.integer, size_of(storage));
  }
}

Scalar rounded(DType dtype, Scalar value) {
  std::byte bytes[8] = {};
  write(dtype, bytes, value);
  return read(dtype, bytes);
}

double rounded_in_block(int64_t k, int64_t count, int64_t block,
                        const std::function<double(int64_t)>& element) {
  float most = 0;
  for (int64_t i = k / block * block; i < std::min(count, (k / block + 1) * block); ++i) {
    const auto size = static_cast<float>(std::abs(element(i)));
    if (!std::isfinite(size)) return std::numeric_limits<double>::quiet_NaN();
    most = std::max(most, size);
  }
  if (most < 0x1p-119f) return 0;
  return std::nearbyint(static_cast<float>(element(k)) * (127 / most)) * double{most / 127};
}

Scalar convert(DType from, DType to, Scalar value) {
  if (to == DType::b8) return integer(is_floating(from) ? value.real != 0 : value.integer != 0);
  if (is_floating(from) == is_floating(to)) return rounded(to, value);
  if (is_floating(to)) return rounded(to, real(static_cast<double>(value.integer)));
  return integer(wrap(to, static_cast<int64_t>(value.real)));
}

Scalar apply(PlanOp op, DType dtype, Scalar a, Scalar b, Scalar c) {
  if (op == PlanOp::select_) return a.integer != 0 ? b : c;
  if (is_floating(dtype)) {
    const Scalar result = real_binary(op, a.real, b.real);
    return rounded(dtype, {result.real, 0}).real == result.real || std::isnan(result.real)
               ? result
               : Scalar{rounded(dtype, result).real, result.integer};
  }
  return integer(wrap(dtype, integer_binary(op, a.integer, b.integer)));
}

Scalar identity(PlanOp reduction, DType dtype) {
  const bool wide = dtype == DType::i64;
  switch (reduction) {
    case PlanOp::reduce_prod_: return {1, 1};
    case PlanOp::reduce_max_:
      return {-INFINITY, dtype == DType::b8 ? 0
                         : wide             ? std::numeric_limits<int64_t>::min()
                                            : std::numeric_limits<int32_t>::min()};
    case PlanOp::reduce_min_:
      return {INFINITY, dtype == DType::b8 ? 1
                        : wide             ? std::numeric_limits<int64_t>::max()
                                           : std::numeric_limits<int32_t>::max()};
    default: return {};
  }
}

Scalar combine(PlanOp reduction, DType dtype, Scalar a, Scalar b) {
  switch (reduction) {
    case PlanOp::reduce_sum_: return apply(PlanOp::add_, dtype, a, b);
    case PlanOp::reduce_prod_: return apply(PlanOp::mul_, dtype, a, b);
    case PlanOp::reduce_max_: return apply(PlanOp::max_, dtype, a, b);
    default: return apply(PlanOp::min_, dtype, a, b);
  }
}

}  // namespace dvm::reference
