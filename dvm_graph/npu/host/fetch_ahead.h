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
  // `hurry`: fetches so many times as fast as lines are needed, until it is told where to go on.
  DVM_INLINE explicit FetchAhead(const Core& core, int hurry = 1)
      : lines_(core.ahead.lines * hurry), two_(core.ahead.streams[1].tile != nullptr) {}

  // From the start of the next tile on, or from where an earlier group has stopped.
  DVM_INLINE void begin(const Ahead& ahead) {
    at_ = ahead.streams[0].next;
    other_ = ahead.streams[1].next;
    turned_ = false;
  }
  DVM_INLINE void end(Ahead& ahead) const {
    ahead.streams[0].next = turned_ ? other_ : at_;
    ahead.streams[1].next = turned_ ? at_ : other_;
  }
  // From `distance` bytes behind row `row` of the tile on.
  DVM_INLINE void begin(const Ahead& ahead, int64_t row, int64_t distance) {
    if (lines_ == 0) return;
    at_ = place(ahead.streams[0], row, distance);
    if (two_) other_ = place(ahead.streams[1], row, distance);
    turned_ = false;
  }

  DVM_INLINE void strip() {
    const std::byte* at = at_;
    for (int i = 0; i < lines_; i++, at += kLine) __builtin_prefetch(at, 0, 2);
    at_ = two_ ? other_ : at;
    other_ = at;
    turned_ ^= two_;
  }

 private:
  DVM_INLINE static const std::byte* place(const Ahead::Stream& stream, int64_t row,
                                           int64_t distance) {
    const int64_t at = stream.row_bytes * row + distance;
    return at < stream.bytes ? stream.tile + at : stream.next + (at - stream.bytes);
  }

  static constexpr int64_t kLine = 64;
  const std::byte* at_ = nullptr;  // of the stream whose turn it is
  const std::byte* other_ = nullptr;
  int lines_;
  bool two_;
  bool turned_ = false;  // the second stream's turn
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
