// f16 and bf16 as floats: rounded to nearest even, NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace dvm {

inline float float_of_half(uint16_t half) {
  constexpr uint32_t kExponent = 0x7c00u << 13, kSmallest = 113u << 23;
  uint32_t bits = (half & 0x7fffu) << 13;
  const uint32_t exponent = bits & kExponent;
  bits += 112u << 23;
  if (exponent == kExponent) bits += 112u << 23;
  if (exponent == 0) {  // what is added makes it a normal number, and is taken off again
    bits = std::bit_cast<uint32_t>(std::bit_cast<float>(bits + (1u << 23)) -
                                   std::bit_cast<float>(kSmallest));
  }
  return std::bit_cast<float>(bits | (half & 0x8000u) << 16);
}

inline uint16_t half_of_float(float value) {
  const uint32_t all = std::bit_cast<uint32_t>(value), bits = all & 0x7fffffffu;
  const auto sign = static_cast<uint16_t>(all >> 16 & 0x8000u);
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
  if (bits >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (bits < 0x38800000u) {  // the last bit of a small half is that of a float beside 0.5
    const float sum = std::bit_cast<float>(bits) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((bits + 0xfffu + (bits >> 13 & 1u) - (112u << 23)) >> 13));
}

// Rounded once: a float in between has an odd last bit where it is not exact, and is no tie then.
inline uint16_t half_of_double(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  const double off = value - double{nearest};
  if (off == 0 || off != off || (bits & 1) != 0) return half_of_float(nearest);
  const bool outwards = (off < 0) == ((bits & 0x80000000u) != 0);
  return half_of_float(std::bit_cast<float>(outwards ? bits + 1 : bits - 1));
}

inline float float_of_bfloat(uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16);
}

inline uint16_t bfloat_of_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace dvm
