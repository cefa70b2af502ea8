#include "runtime/output_pool.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "npu/host/process.h"
#include "runtime/memory.h"

namespace dvm {
namespace {

// Up to an eighth more than asked for, so that outputs which grow step by step reuse their memory.
int64_t rounded(int64_t bytes) {
  const auto eighth = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  if (bytes > std::numeric_limits<int64_t>::max() - eighth) return bytes;  // not to be had
  return (bytes + eighth - 1) / eighth * eighth;
}

}  // namespace

// Blocks that nobody uses, oldest first. A block that comes back finds room: it was made when the
// block was taken, since whoever drops an output cannot be told that memory ran out. In a forked
// child blocks of the parent's pool do not come back.
class OutputPool::Shelf {
 public:
  struct Block {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };

  // The smallest block that fits, and not too loosely; without memory if there is none. It may be
  // put back.
  Block find(int64_t bytes) {
    const std::lock_guard lock(whole_at_fork());
    const size_t needed = blocks_.size() + taken_ + 1;
    if (blocks_.capacity() < needed) blocks_.reserve(2 * needed);
    taken_++;
    auto best = blocks_.end();
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
      if (block->bytes < bytes || block->bytes / kMostSlack > bytes) continue;
      if (best == blocks_.end() || block->bytes <= best->bytes) best = block;
    }
    if (best == blocks_.end()) return {};
    Block found = std::move(*best);
    blocks_.erase(best);
    bytes_ -= found.bytes;
    return found;
  }

  // A block that find() gave, or that was taken instead.
  void put(Block block) noexcept {
    {
      const std::lock_guard lock(whole_at_fork());
      taken_--;
      if (process_ != process_generation() || block.memory == nullptr) return;
      bytes_ += block.bytes;
      blocks_.push_back(std::move(block));
    }
    trim();
  }

  void limit(int64_t bytes) noexcept {
    {
      const std::lock_guard lock(whole_at_fork());
      limit_ = bytes;
    }
    trim();
  }

  int64_t bytes() const {
    const std::lock_guard lock(whole_at_fork());
    return bytes_;
  }

 private:
  // Memory returns to the system one block at a time, and under no lock.
  void trim() noexcept {
    for (;;) {
      Block dropped;
      const std::lock_guard lock(whole_at_fork());
      if (bytes_ <= limit_) return;
      dropped = std::move(blocks_.front());
      blocks_.erase(blocks_.begin());
      bytes_ -= dropped.bytes;
    }
  }

  const uint32_t process_ = process_generation();
  std::vector<Block> blocks_;
  size_t taken_ = 0;  // blocks that will come back
  int64_t bytes_ = 0, limit_ = 0;
};

OutputPool::OutputPool() : shelf_(std::make_shared<Shelf>()) {}

std::shared_ptr<void> OutputPool::take(int64_t bytes, const char* what) {
  if (bytes < kSmallest) return allocate(bytes, what);
  bytes = rounded(bytes);
  Shelf::Block block = shelf_->find(bytes);
  try {
    if (block.memory == nullptr) block = {allocate(bytes, what), bytes};
  } catch (...) {
    shelf_->put({});
    throw;
  }
  taken_[run_] += bytes;
  void* const address = block.memory.get();
  return {address, [block = std::move(block), shelf = std::weak_ptr(shelf_)](void*) mutable {
            if (const auto open = shelf.lock()) open->put(std::move(block));
          }};
}

void OutputPool::end_run() {
  const int64_t most = *std::max_element(taken_.begin(), taken_.end());
  shelf_->limit(most + most / 2);
  run_ = (run_ + 1) % kRecentRuns;
  taken_[run_] = 0;
}

int64_t OutputPool::unused_bytes() const { return shelf_->bytes(); }

}  // namespace dvm
