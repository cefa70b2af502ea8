// Fetching of what later rows or the next tile will read, while joined instructions work.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"
#include "vm/core.h"

namespace dvm::DVM_LEVEL {
namespace {

// Fetches lines that will be read soon, the more evenly the better: memory works meanwhile. More
// than that may be fetched, which does no harm.
class FetchAhead {
 public:
  DVM_INLINE explicit FetchAhead(const Core& core)
      : lines_(core.ahead.lines), two_(core.ahead.streams[1].tile != nullptr) {}
  FetchAhead(const FetchAhead&) = delete;
  FetchAhead& operator=(const FetchAhead&) = delete;

  // From the start of the next tile on, or from where an earlier group has stopped.
  DVM_INLINE void begin(const Ahead& ahead) {
    for (int s = 0; s < 2; s++) at_[s] = ahead.streams[s].next;
  }
  DVM_INLINE void end(Ahead& ahead) const {
    for (int s = 0; s < 2; s++) ahead.streams[s].next = at_[s];
  }
  // From `distance` bytes behind row `row` of the tile on.
  DVM_INLINE void begin(const Ahead& ahead, int64_t row, int64_t distance) {
    if (lines_ == 0) return;
    for (int s = 0; s < (two_ ? 2 : 1); s++) {
      const Ahead::Stream& stream = ahead.streams[s];
      const int64_t at = stream.row_bytes * row + distance;
      at_[s] = at < stream.bytes ? stream.tile + at : stream.next + (at - stream.bytes);
    }
  }

  DVM_INLINE void strip() {
    const std::byte* at = at_[turn_];
    for (int i = 0; i < lines_; i++, at += kLine) __builtin_prefetch(at, 0, 2);
    at_[turn_] = at;
    turn_ ^= static_cast<int>(two_);
  }

 private:
  static constexpr int64_t kLine = 64;
  const std::byte* at_[2] = {};
  const int lines_;
  const bool two_;
  int turn_ = 0;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
