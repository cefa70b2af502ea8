// Quotients by one number, of which divisions would take many times as long as multiplications.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/lanes.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr float kModerate = 0x1p-60f;  // or more, up to its reciprocal
DVM_INLINE bool is_moderate(float x) {
  return __builtin_fabsf(x) >= kModerate && __builtin_fabsf(x) <= 1 / kModerate;
}

// Divides by one number. Where a division takes many times as long as a multiplication, and all is
// moderate: a quotient that is off by less than its last bit, and the remainder of it times the
// rounded reciprocal, give the rounded quotient (P. Markstein, Computation of elementary functions
// on the IBM RISC System/6000, 1990). Sizes are such that no remainder loses bits.
template <int K>
DVM_INLINE void divide_by(float by, F (&x)[K]) {
  const F y = splat<F>(by);
#if defined(DVM_AVX512)
  if (is_moderate(by)) [[likely]] {
    const __m512 divisor = bits_as<__m512>(y), r = _mm512_set1_ps(1 / by);
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), one = _mm512_set1_epi32(1);
    // 0 is as good as what is moderate: less 1, it is the largest of all.
    const __m512i small = _mm512_set1_epi32(__builtin_bit_cast(int32_t, kModerate) - 1);
    F quotients[K];
    __mmask16 apart = 0;
    each<K>([&](auto index) DVM_LAMBDA_INLINE {
      const __m512 v = bits_as<__m512>(x[index.k]), first = _mm512_mul_ps(v, r);
      const __m512 near = _mm512_fmadd_ps(_mm512_fnmadd_ps(first, divisor, v), r, first);
      const __m512 last = _mm512_fmadd_ps(_mm512_fnmadd_ps(near, divisor, v), r, near);
      // What is infinite, NaN or too large has become NaN; 0 has lost its sign.
      const __m512i sizes = _mm512_and_si512(_mm512_castps_si512(v), magnitude);
      apart |= _mm512_cmp_ps_mask(last, last, _CMP_UNORD_Q) |
               _mm512_cmplt_epu32_mask(_mm512_sub_epi32(sizes, one), small);
      quotients[index.k] = bits_as<F>(_mm512_ternarylogic_epi32(
          _mm512_castps_si512(last), _mm512_castps_si512(first), magnitude, 0xf4));
    });
    if (apart == 0) [[likely]] {
      each<K>([&](auto index) DVM_LAMBDA_INLINE { x[index.k] = quotients[index.k]; });
      return;
    }
  }
#endif
  each<K>([&](auto index) DVM_LAMBDA_INLINE { x[index.k] = x[index.k] / y; });
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
