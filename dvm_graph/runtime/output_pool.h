// Memory of what a model gives: its fresh outputs, and what loops collect. It comes back when the
// caller's last array over it is gone, and serves a later run: memory fresh from the system costs a
// fault per page, which is more than many a kernel takes to fill it.
//
// A block is at most kMostSlack times as large as what it serves, which the caller may keep. What
// lies here unused never exceeds the outputs of one recent run by more than half of them: of
// outputs of many sizes, there is room for a block each that is so many times as large as the next.
// The caller may keep arrays for longer than the pool lives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace dvm {

class OutputPool {
 public:
  OutputPool();

  // At least `bytes`, aligned as by `allocate`, with whatever contents. Throws OutOfMemoryError;
  // `what` names the output. Blocks may die on any thread, all else belongs to one.
  std::shared_ptr<void> take(int64_t bytes, const char* what);

  // Begins to count what a run takes. Of one that fails, which does not end, nothing counts.
  void begin_run() { taken_[run_] = 0; }
  // Drops what recent runs would not have needed. To be called after every run.
  void end_run();

  int64_t unused_bytes() const;

  static constexpr int64_t kSmallest = int64_t{1} << 15;  // smaller ones are left to malloc
  static constexpr int64_t kMostSlack = 4;
  static constexpr size_t kRecentRuns = 64;

 private:
  class Shelf;

  std::shared_ptr<Shelf> shelf_;
  std::array<int64_t, kRecentRuns> taken_ = {};  // bytes, by run; a ring
  size_t run_ = 0;
};

}  // namespace dvm
