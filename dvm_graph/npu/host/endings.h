// What sums end as on their way to memory (vm/ending.h): between two numbers or, where `slope` is
// not 0, times a line of themselves that is kept between these.
#pragma once

#include "npu/host/loops.h"

namespace dvm::DVM_LEVEL {
namespace {

template <class T>
struct Ending {
  T low = -kInfinite<T>, high = kInfinite<T>, slope = 0, offset = 0;

  Ending() = default;
  explicit Ending(const uint64_t* words) {
    for (T* const number : {&low, &high, &slope, &offset})
      __builtin_memcpy(number, words++, sizeof *number);
  }

  DVM_INLINE bool gates() const { return slope != 0; }
  DVM_INLINE bool any() const { return gates() || low > -kInfinite<T> || high < kInfinite<T>; }

  // NaN passes the bounds.
  template <class V>
  DVM_INLINE V bounded(V sum) const {
    return lesser_lanes(splat<V>(high), greater_lanes(splat<V>(low), sum));
  }
  template <class V>
  DVM_INLINE V gated(V sum) const {
    return sum * bounded(sum * splat<V>(slope) + splat<V>(offset));
  }
  template <class V>
  DVM_INLINE V end(V sum) const {
    return gates() ? gated(sum) : bounded(sum);
  }
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
