#include "runtime/memory_plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/errors.h"

namespace dvm {
namespace {

int64_t add_checked(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    throw OutOfMemoryError("the intermediate values of this run need more than 2^63 bytes");
  }
  return sum;
}

int64_t aligned(int64_t bytes) {
  return add_checked(bytes, kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

}  // namespace

void MemoryPlanner::find_roots(const std::vector<BufferRequest>& requests) {
  roots_.resize(requests.size());
  lasts_.assign(requests.size(), 0);
  order_.clear();
  for (uint32_t i = 0; i < requests.size(); i++) {
    uint32_t root = i;
    for (int32_t over; (over = requests[root].over) >= 0;) {
      if (requests[root].bytes > requests[static_cast<size_t>(over)].bytes) break;
      root = static_cast<uint32_t>(over);
    }
    roots_[i] = root;
    lasts_[root] = std::max(lasts_[root], requests[i].last);
    if (root == i) order_.push_back(i);
  }
}

int64_t MemoryPlanner::plan(std::vector<BufferRequest>& requests, int64_t cached_bytes) {
  find_roots(requests);
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    return requests[a].bytes != requests[b].bytes ? requests[a].bytes > requests[b].bytes : a < b;
  });
  int64_t total = cached_bytes > 0 ? place(requests, true, cached_bytes) : -1;
  if (total < 0) total = place(requests, false, std::numeric_limits<int64_t>::max());
  for (uint32_t i = 0; i < requests.size(); i++) requests[i].offset = requests[roots_[i]].offset;
  return total;
}

// Of requests in order, those that have a place of their own. -1: it takes more than `most` bytes.
int64_t MemoryPlanner::place(std::vector<BufferRequest>& requests, bool by_size, int64_t most) {
  const auto meet = [&](uint32_t a, uint32_t b) {
    return (by_size && requests[a].bytes != requests[b].bytes) ||
           (requests[a].first <= lasts_[b] && requests[b].first <= lasts_[a]);
  };
  placed_.clear();  // in the order of offsets
  int64_t total = 0;
  for (const uint32_t index : order_) {
    BufferRequest& request = requests[index];
    const int64_t bytes = aligned(request.bytes);
    int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), end = 0;
    for (const uint32_t other_index : placed_) {
      const BufferRequest& other = requests[other_index];
      if (!meet(index, other_index)) continue;
      const int64_t gap = other.offset - end;
      if (gap >= bytes && gap < best_gap) best = end, best_gap = gap;
      end = std::max(end, other.offset + aligned(other.bytes));
    }
    request.offset = best >= 0 ? best : end;
    total = std::max(total, add_checked(request.offset, bytes));
    if (total > most) return -1;
    const auto behind = std::upper_bound(
        placed_.begin(), placed_.end(), request.offset,
        [&](int64_t offset, uint32_t other) { return offset < requests[other].offset; });
    placed_.insert(behind, index);
  }
  return total;
}

}  // namespace dvm
