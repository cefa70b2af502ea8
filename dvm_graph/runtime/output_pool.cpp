#include "runtime/output_pool.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/memory.h"

namespace dvm {
namespace {

// Up to an eighth more than asked for, so that outputs which grow step by step reuse their memory.
int64_t rounded(int64_t bytes) {
  const auto eighth = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  return (bytes + eighth - 1) / eighth * eighth;
}

}  // namespace

// Blocks that nobody uses, oldest first.
class OutputPool::Shelf {
 public:
  struct Block {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };

  // The smallest block that fits; without memory if there is none.
  Block find(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    auto best = blocks_.end();
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
      if (block->bytes < bytes) continue;
      if (best == blocks_.end() || block->bytes <= best->bytes) best = block;
    }
    if (best == blocks_.end()) return {};
    Block found = std::move(*best);
    blocks_.erase(best);
    bytes_ -= found.bytes;
    return found;
  }

  void put(Block block) {
    const std::lock_guard lock(mutex_);
    bytes_ += block.bytes;
    blocks_.push_back(std::move(block));
    trim();
  }

  void limit(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
    trim();
  }

  int64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  void trim() {
    auto kept = blocks_.begin();
    for (; bytes_ > limit_; ++kept) bytes_ -= kept->bytes;
    blocks_.erase(blocks_.begin(), kept);
  }

  mutable std::mutex mutex_;
  std::vector<Block> blocks_;
  int64_t bytes_ = 0, limit_ = 0;
};

OutputPool::OutputPool() : shelf_(std::make_shared<Shelf>()) {}

std::shared_ptr<void> OutputPool::take(int64_t bytes, const char* what) {
  if (bytes < kSmallest) return allocate(bytes, what);
  bytes = rounded(bytes);
  taken_[run_] += bytes;
  Shelf::Block block = shelf_->find(bytes);
  if (block.memory == nullptr) block = {allocate(bytes, what), bytes};
  void* const address = block.memory.get();
  return {address, [block = std::move(block), shelf = std::weak_ptr(shelf_)](void*) mutable {
            if (const auto open = shelf.lock()) open->put(std::move(block));
          }};
}

void OutputPool::end_run() {
  shelf_->limit(*std::max_element(taken_.begin(), taken_.end()));
  run_ = (run_ + 1) % kRecentRuns;
  taken_[run_] = 0;
}

int64_t OutputPool::unused_bytes() const { return shelf_->bytes(); }

}  // namespace dvm
