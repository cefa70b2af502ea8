// Replaces the operators new and delete of a test program by ones that count what each thread
// takes, and fail when they are told to. Include it once.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace dvm::testing {

inline thread_local int64_t allocations = 0;

// How many allocations succeed, of all threads, before one fails and all after it; negative: all
// do.
inline std::atomic<int64_t> until_failure{-1};

inline void* counted(std::size_t bytes, std::size_t alignment) {
  allocations++;
  if (until_failure.load(std::memory_order_relaxed) >= 0) {
    if (until_failure.fetch_sub(1, std::memory_order_relaxed) <= 0) {
      until_failure.store(0, std::memory_order_relaxed);
      throw std::bad_alloc();
    }
  }
  const std::size_t rounded = (bytes + alignment) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, rounded)) return memory;
  throw std::bad_alloc();
}

}  // namespace dvm::testing

void* operator new(std::size_t bytes) { return dvm::testing::counted(bytes, 16); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return dvm::testing::counted(bytes, static_cast<std::size_t>(alignment));
}
// As the library's own, which sanitizers replace by theirs, do.
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return operator new(bytes, std::align_val_t{16}, std::nothrow);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
