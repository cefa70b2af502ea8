// What the units of a core can do at most: multiply-adds in registers, and memory in one direction
// or both, with nothing between the units and the data.
#include "npu/host/simd.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

using V = Full<float>;

// As many independent chains as hide the latency of two units and still fit the registers.
int64_t multiply_add(int64_t steps) {
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

void copy(float* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes<float>) store_stream(to + i, load<V>(from + i));
}

void read(const float* from, int64_t count) {
  constexpr int kStreams = 8;
  V sums[kStreams] = {};
  for (int64_t i = 0; i < count; i += kStreams * kLanes<float>) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; s++) sums[s] += load<V>(from + i + s * kLanes<float>);
  }
  asm volatile("" : : "m"(sums));
}

}  // namespace

const Limits limits = {&multiply_add, &copy, &read};

}  // namespace dvm::DVM_LEVEL
