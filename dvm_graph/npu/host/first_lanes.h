// The first lanes of a vector, and the others of another one. Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"

namespace dvm::DVM_LEVEL {
namespace {

// Lanes of `v`, and from `count` on (0 <= count <= lanes) those of `others`.
template <class V>
DVM_INLINE V first_lanes(V v, int64_t count, V others) {
  constexpr int kElement = sizeof(Element<V>);
  using Lane = std::conditional_t<kElement == 8, int64_t,
                                  std::conditional_t<kElement == 4, int32_t, int8_t>>;
  Vec<Lane, kLanesOf<V>> lane;
  for (int i = 0; i < kLanesOf<V>; i++) lane[i] = static_cast<Lane>(i);
  return lane < static_cast<Lane>(count) ? v : others;
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
