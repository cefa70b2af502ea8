// Fetches what d_prefetch has named into L2, in the last part of a product: so late that little of
// it is pushed out again by what the product itself reads, and a few lines at a time, which the
// memory delivers while the multiply-adds go on.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"
#include "vm/core.h"

namespace dvm::DVM_LEVEL {
namespace {

class FetchLater {
 public:
  // Takes the rows that the core was told of. `fetch` will be called so many times.
  FetchLater(Core& core, int64_t calls) : next_(core.later), end_(core.later + core.laters) {
    if (!any()) return;  // which short products are glad of
    core.laters = 0;
    int64_t lines = 0;
    for (const Later* rows = next_; rows != end_; rows++) {
      lines += rows->rows * (rows->row_bytes / kLine + 1);
    }
    lines_ = calls <= 0 ? 0 : lines / calls + 1;
    lines_ = lines_ < kLeast ? kLeast : lines_ > kMost ? kMost : lines_;
    wait_ = calls - lines / lines_;
    take();
  }

  bool any() const { return next_ != end_; }

  DVM_INLINE void fetch() {
    if (wait_ > 0) {
      wait_--;
      return;
    }
    for (int64_t i = 0; i < lines_; i++) {
      __builtin_prefetch(reinterpret_cast<const void*>(at_), 0, 2);
      at_ += kLine;
      if (at_ >= row_end_) advance();
    }
  }

 private:
  static constexpr int64_t kLine = 64, kLeast = 2, kMost = 8;

  DVM_INLINE void advance() {
    if (next_ == end_) return;
    row_ += static_cast<uintptr_t>(next_->stride);
    if (--left_ == 0) {
      next_++;
      take();
    } else {
      at_ = row_ - row_ % kLine;
      row_end_ = row_ + static_cast<uintptr_t>(next_->row_bytes);
    }
  }

  DVM_INLINE void take() {
    if (next_ == end_) {
      lines_ = 0;
      return;
    }
    row_ = reinterpret_cast<uintptr_t>(next_->at);
    left_ = next_->rows;
    at_ = row_ - row_ % kLine;
    row_end_ = row_ + static_cast<uintptr_t>(next_->row_bytes);
  }

  const Later *next_, *end_;
  uintptr_t at_ = 0, row_ = 0, row_end_ = 0;  // numbers, for they leave the rows' memory
  int64_t left_ = 0, lines_ = 0, wait_ = 0;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
