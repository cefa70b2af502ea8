// Memory of runs: arenas that grow, and shrink again when large shapes stop coming, and the check
// that an allocation is backed by memory that exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "vm/core.h"  // kLinePair

namespace dvm {

template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t count) {
    const size_t bytes = (count * sizeof(T) + kLinePair - 1) / kLinePair * kLinePair;
    return static_cast<T*>(::operator new(bytes, std::align_val_t(kLinePair)));
  }
  void deallocate(T* at, size_t) { ::operator delete(at, std::align_val_t(kLinePair)); }
  bool operator==(const LineAllocator&) const = default;
};
// What a core writes again and again, in lines that no other core touches.
template <class T>
using OwnLines = std::vector<T, LineAllocator<T>>;

// Bytes this process could still take: physical memory and the limits of its control group.
int64_t available_memory();

// Throws OutOfMemoryError unless `bytes` could be taken; `what` names the taker. Small requests are
// not checked.
void require_memory(int64_t bytes, const char* what);

// 64-byte aligned memory, straight from the system where it is large, so that it returns there.
std::shared_ptr<void> allocate(int64_t bytes, const char* what);

// Memory that lives as long as a model, cut from large blocks: huge pages then hold many small
// tensors, and only the last one of a block is not full.
class Store {
 public:
  std::shared_ptr<void> take(int64_t bytes, const char* what);

 private:
  std::shared_ptr<void> block_;
  int64_t used_ = 0, capacity_ = 0;
};

// A block that fits the shapes of recent runs.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  // Makes the block hold `bytes`. Contents are lost when true is returned: the block moved.
  // Shrinks after kPatience successive calls that needed less than half of it.
  bool reserve(int64_t bytes);
  // As reserve, but never shrinks.
  bool grow(int64_t bytes);
  void release();

  std::byte* data() const { return data_; }
  int64_t capacity() const { return capacity_; }

  static constexpr int kPatience = 64;

 private:
  bool replace(int64_t bytes);

  std::byte* data_ = nullptr;
  int64_t capacity_ = 0;
  int small_runs_ = 0;
  int64_t largest_small_ = 0;  // among those successive calls
};

}  // namespace dvm
