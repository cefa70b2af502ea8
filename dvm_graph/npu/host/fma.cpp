// The ceiling of the cube unit: independent multiply-adds in registers, no memory.
//
// There are as many chains as hide the latency of two units and still fit the registers.
#include "npu/host/simd.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {

int64_t multiply_add(int64_t steps) {
  using V = Full<float>;
#if defined(DVM_AVX512) || defined(__aarch64__)
  constexpr int kChains = 24;  // of 32 registers
#else
  constexpr int kChains = 12;  // of 16
#endif
  V sums[kChains] = {};
  V factor = V{} + 0.999f, addend = V{} + 1e-6f;
  asm volatile("" : "+m"(factor), "+m"(addend));  // no constants to the compiler
  const V x = factor, y = addend;
  for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 24
    for (int chain = 0; chain < kChains; chain++) sums[chain] = sums[chain] * x + y;
  }
  asm volatile("" : : "m"(sums));
  return 2 * kChains * kLanes<float> * steps;
}

}  // namespace dvm::DVM_LEVEL
