// The clock that runs are measured with.
#pragma once

#include <chrono>
#include <cstdint>

namespace dvm {

// Nanoseconds of the steady clock.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace dvm
