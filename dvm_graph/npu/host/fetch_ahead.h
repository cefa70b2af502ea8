// Fetching of what later rows or the next tile will read, while joined instructions work.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"
#include "vm/core.h"

namespace dvm::DVM_LEVEL {
namespace {

// Fetches lines that will be read soon, the more evenly the better: memory works meanwhile.
class FetchAhead {
 public:
  // Work begins at the start of the tile, and what lies `distance` bytes further on is fetched.
  DVM_INLINE FetchAhead(Core& core, int64_t distance) : FetchAhead(core) {
    for (Ahead::Range& range : ranges_) {
      if (range.at - range.tile > distance) range.at = range.tile + distance;
    }
  }
  // Fetches the next tile, from where earlier instructions on this tile have stopped.
  DVM_INLINE explicit FetchAhead(Core& core)
      : core_(core),
        ranges_{core.ahead.ranges[0], core.ahead.ranges[1]},
        lines_(core.ahead.lines) {}
  DVM_INLINE ~FetchAhead() {
    core_.ahead.ranges[0] = ranges_[0];
    core_.ahead.ranges[1] = ranges_[1];
  }
  FetchAhead(const FetchAhead&) = delete;
  FetchAhead& operator=(const FetchAhead&) = delete;

  DVM_INLINE void strip() {
    const std::byte* at = ranges_[0].at;
    const std::byte* const end = ranges_[0].end;
    for (int i = 0; i < lines_ && at < end; i++) {
      __builtin_prefetch(at, 0, 2);
      at += kLine;
    }
    ranges_[0].at = at;
    if (ranges_[1].at < ranges_[1].end) {
      const Ahead::Range other = ranges_[1];
      ranges_[1] = ranges_[0];
      ranges_[0] = other;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  Core& core_;
  Ahead::Range ranges_[2];
  const int lines_;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
