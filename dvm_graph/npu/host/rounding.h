// Sums of bytes as the levels that they are rounded to, most of which are bytes themselves.
// Compiled per level of instructions: see simd.h.
#pragma once

#include "npu/host/simd.h"
#include "vm/isa.h"

namespace dvm::DVM_LEVEL {
namespace {

// Half to even; the least number of NaN, and of what is too large or too small.
DVM_INLINE Full<int32_t> to_nearest(Full<float> v) {
#if defined(DVM_AVX512)
  return bits_as<Full<int32_t>>(_mm512_cvtps_epi32(bits_as<__m512>(v)));
#elif defined(DVM_AVX2)
  return bits_as<Full<int32_t>>(_mm256_cvtps_epi32(bits_as<__m256>(v)));
#elif defined(DVM_X86)
  return bits_as<Full<int32_t>>(_mm_cvtps_epi32(bits_as<__m128>(v)));
#else
  for (int64_t i = 0; i < kLanes<float>; i++) v[i] = __builtin_rintf(v[i]);
  return convert<int32_t>(v);
#endif
}

// Bytes of four vectors that are no more than a byte can be once `more` is added, and what is less
// than 0 then, 0. Each 16 bytes hold words of four vectors, one of each.
DVM_INLINE Full<uint8_t> to_bytes(const Full<int32_t> (&from)[4], int32_t more) {
#if defined(DVM_AVX512)
  using V = __m512i;
  const V added = _mm512_set1_epi16(static_cast<int16_t>(more));
  const auto halves = [&](int i) DVM_LAMBDA_INLINE {
    return _mm512_adds_epi16(_mm512_packs_epi32(bits_as<V>(from[i]), bits_as<V>(from[i + 1])),
                             added);
  };
  return bits_as<Full<uint8_t>>(_mm512_packus_epi16(halves(0), halves(2)));
#elif defined(DVM_AVX2)
  using V = __m256i;
  const V added = _mm256_set1_epi16(static_cast<int16_t>(more));
  const auto halves = [&](int i) DVM_LAMBDA_INLINE {
    return _mm256_adds_epi16(_mm256_packs_epi32(bits_as<V>(from[i]), bits_as<V>(from[i + 1])),
                             added);
  };
  return bits_as<Full<uint8_t>>(_mm256_packus_epi16(halves(0), halves(2)));
#elif defined(DVM_X86)
  using V = __m128i;
  const V added = _mm_set1_epi16(static_cast<int16_t>(more));
  const auto halves = [&](int i) DVM_LAMBDA_INLINE {
    return _mm_adds_epi16(_mm_packs_epi32(bits_as<V>(from[i]), bits_as<V>(from[i + 1])), added);
  };
  return bits_as<Full<uint8_t>>(_mm_packus_epi16(halves(0), halves(2)));
#else
  const auto one = [&](int i) DVM_LAMBDA_INLINE {
    const auto least = splat<Full<int32_t>>(-more);
    return convert<uint8_t>(greater_lanes(from[i], least) + splat<Full<int32_t>>(more));
  };
  return join(join(one(0), one(1)), join(one(2), one(3)));
#endif
}

// Bytes of a vector after those of the one before, of what to_bytes makes.
DVM_INLINE Full<uint8_t> one_by_one(Full<uint8_t> bytes) {
  const auto words = bits_as<Full<int32_t>>(bytes);
  return [words]<int... I>(std::integer_sequence<int, I...>) DVM_LAMBDA_INLINE {
    constexpr int kParts = kVectorBytes / 16;
    return bits_as<Full<uint8_t>>(
        __builtin_shufflevector(words, words, (I % kParts * 4 + I / kParts)...));
  }(std::make_integer_sequence<int, kLanes<int32_t>>{});
}

struct Rounding {
  float high;         // less the zero point
  int32_t low, zero;  // of signed bytes: 128 more
  uint8_t sign;       // in which those differ from unsigned ones

  // Of levels that are stored as T, bytes of both signs as u8.
  template <class T>
  static Rounding to(const Levels& levels) {
    const uint8_t sign = sizeof(T) == 1 && levels.low < 0 ? 0x80 : 0;
    return {static_cast<float>(levels.high - levels.zero), static_cast<int32_t>(levels.low) + sign,
            static_cast<int32_t>(levels.zero) + sign, sign};
  }

  // Less the zero point, and no more than the highest level is.
  DVM_INLINE Full<int32_t> round(Full<int32_t> sums, Full<float> factors) const {
    return to_nearest(lesser_lanes(splat<Full<float>>(high), convert<float>(sums) * factors));
  }

  // Of rounded sums.
  template <class T>
  DVM_INLINE auto levels(Full<int32_t> rounded) const {
    const auto least = splat<Full<int32_t>>(low - zero), more = splat<Full<int32_t>>(zero);
    return convert<T>(greater_lanes(rounded, least) + more) ^ static_cast<T>(sign);
  }
  DVM_INLINE Full<uint8_t> levels(const Full<int32_t> (&rounded)[4]) const {
    const auto least = splat<Full<uint8_t>>(static_cast<uint8_t>(low));
    return greater_lanes(to_bytes(rounded, zero), least) ^ sign;
  }
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
