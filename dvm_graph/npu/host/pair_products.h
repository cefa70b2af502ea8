// Products of i16 that are added in pairs, where no instruction multiplies bytes as they are.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"

namespace dvm::DVM_LEVEL {
namespace {

// Products of neighbouring i16, added in twos.
[[maybe_unused]] DVM_INLINE Full<uint32_t> multiply_pairs(Full<uint32_t> a, Full<uint32_t> b) {
#if defined(DVM_AVX512)
  return bits_as<Full<uint32_t>>(_mm512_madd_epi16(bits_as<__m512i>(a), bits_as<__m512i>(b)));
#elif defined(DVM_AVX2)
  return bits_as<Full<uint32_t>>(_mm256_madd_epi16(bits_as<__m256i>(a), bits_as<__m256i>(b)));
#elif defined(DVM_X86)
  return bits_as<Full<uint32_t>>(_mm_madd_epi16(bits_as<__m128i>(a), bits_as<__m128i>(b)));
#else
  const auto low = [](Full<uint32_t> v)
                       DVM_LAMBDA_INLINE { return bits_as<Full<int32_t>>(v << 16) >> 16; };
  const auto high = [](Full<uint32_t> v)
                        DVM_LAMBDA_INLINE { return bits_as<Full<int32_t>>(v) >> 16; };
  return bits_as<Full<uint32_t>>(low(a) * low(b) + high(a) * high(b));
#endif
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
