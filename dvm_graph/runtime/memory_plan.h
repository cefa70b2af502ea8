// Where the intermediate values of a run lie: lifetimes to offsets in one block of memory.
//
// Best fit, largest buffers first: each takes the tightest gap among the buffers whose lifetimes
// meet its own and that are placed already. Offsets are multiples of 64 bytes. A buffer that may be
// written over another one takes the place of that where it is no larger.
//
// As long as all of it stays in the caches, only buffers of one size take the same memory. Every
// core works on its share of each buffer, the same part of it: so it finds there what it stored
// itself, and need not take lines from the caches of other cores.
#pragma once

#include <cstdint>
#include <vector>

namespace dvm {

inline constexpr int64_t kBufferAlignment = 64;

struct BufferRequest {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;  // steps, inclusive, in which the buffer holds data
  int64_t offset = 0;           // the result
  int32_t over = -1;            // the request that ends where this begins, and may be overwritten
};

// Working memory of the planner; keeps its capacity.
class MemoryPlanner {
 public:
  // Sets every request's offset; returns the size of the block. Throws OutOfMemoryError where sizes
  // overflow. `cached_bytes`: what stays in the caches.
  int64_t plan(std::vector<BufferRequest>& requests, int64_t cached_bytes = 0);

 private:
  void find_roots(const std::vector<BufferRequest>& requests);
  int64_t place(std::vector<BufferRequest>& requests, bool by_size, int64_t most);

  std::vector<uint32_t> order_, placed_;
  std::vector<uint32_t> roots_;  // by request: the one whose place it takes, or itself
  std::vector<int32_t> lasts_;   // by request that has a place of its own: of all that take it
};

}  // namespace dvm
