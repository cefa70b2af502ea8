#include "runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "runtime/errors.h"
#include "runtime/memory_plan.h"

namespace dvm {
namespace {

constexpr int64_t kLarge = int64_t{1} << 20;  // taken from the system directly
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kStoreBlock = int64_t{32} << 20;
constexpr int64_t kCheckedFrom = int64_t{64} << 20;
constexpr int64_t kReserve = int64_t{32} << 20;  // left to the rest of the process

constexpr const char* kArena = "the intermediate values of this run";

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// The first number in a file, or -1 (also for "max").
int64_t number_in(const char* path) {
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return -1;
  long long number = -1;
  if (std::fscanf(file, "%lld", &number) != 1) number = -1;
  std::fclose(file);
  return number;
}

int64_t available_in_system() {
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  int64_t available = -1;
  if (file != nullptr) {
    char line[128];
    long long kib = 0;
    while (std::fgets(line, sizeof line, file) != nullptr) {
      if (std::sscanf(line, "MemAvailable: %lld kB", &kib) == 1) available = kib * 1024;
    }
    std::fclose(file);
  }
  if (available >= 0) return available;
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

int64_t available_in_group() {
  int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  int64_t used = number_in("/sys/fs/cgroup/memory.current");
  if (limit < 0) {
    limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  }
  if (limit < 0 || used < 0) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(limit - used, 0);
}

std::string mebibytes(int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

[[noreturn]] void out_of_memory(int64_t bytes, const char* what) {
  throw OutOfMemoryError(std::string(what) + " would take " + mebibytes(bytes) + ", but only " +
                         mebibytes(available_memory()) +
                         " are available; run smaller shapes, or fewer models at once");
}

std::byte* take(int64_t bytes, const char* what) {
  require_memory(bytes, what);
  void* memory = nullptr;
  if (bytes >= kLarge) {
    memory = mmap(nullptr, static_cast<size_t>(round_up(bytes, kHugePage)), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) out_of_memory(bytes, what);
    madvise(memory, static_cast<size_t>(round_up(bytes, kHugePage)), MADV_HUGEPAGE);
  } else {
    const int64_t rounded = round_up(std::max<int64_t>(bytes, 1), kBufferAlignment);
    memory = std::aligned_alloc(kBufferAlignment, static_cast<size_t>(rounded));
    if (memory == nullptr) out_of_memory(bytes, what);
  }
  return static_cast<std::byte*>(memory);
}

// Moves a large block to one of another size. Pages stay where they are in memory: those that both
// have are neither given back nor cleared again.
std::byte* resize(std::byte* memory, int64_t from, int64_t to, const char* what) {
  if (to > from) require_memory(to - from, what);
  const auto old_bytes = static_cast<size_t>(round_up(from, kHugePage));
  const auto bytes = static_cast<size_t>(round_up(to, kHugePage));
  void* moved = mremap(memory, old_bytes, bytes, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) out_of_memory(to, what);
  return static_cast<std::byte*>(moved);
}

void give_back(std::byte* memory, int64_t bytes) {
  if (memory == nullptr) return;
  if (bytes >= kLarge) {
    munmap(memory, static_cast<size_t>(round_up(bytes, kHugePage)));
  } else {
    std::free(memory);
  }
}

}  // namespace

int64_t available_memory() { return std::min(available_in_system(), available_in_group()); }

void require_memory(int64_t bytes, const char* what) {
  if (bytes >= kCheckedFrom && bytes > available_memory() - kReserve) out_of_memory(bytes, what);
}

std::shared_ptr<void> allocate(int64_t bytes, const char* what) {
  std::byte* memory = take(bytes, what);
  return {memory, [bytes](void* p) { give_back(static_cast<std::byte*>(p), bytes); }};
}

std::shared_ptr<void> Store::take(int64_t bytes, const char* what) {
  if (block_ == nullptr || used_ + bytes > capacity_) {  // what is empty has an address, too
    capacity_ = std::max(bytes, kStoreBlock);
    block_ = allocate(capacity_, what);
    used_ = 0;
  }
  std::byte* const start = static_cast<std::byte*>(block_.get()) + used_;
  used_ += round_up(bytes, kBufferAlignment);
  return {block_, start};
}

Arena::~Arena() { release(); }

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  std::swap(small_runs_, other.small_runs_);
  std::swap(largest_small_, other.largest_small_);
  return *this;
}

void Arena::release() {
  give_back(data_, capacity_);
  data_ = nullptr;
  capacity_ = small_runs_ = 0;
  largest_small_ = 0;
}

bool Arena::reserve(int64_t bytes) {
  int64_t wanted = bytes;
  if (bytes <= capacity_ && data_ != nullptr) {
    if (bytes >= capacity_ / 2 || capacity_ < kLarge) {
      small_runs_ = 0;
      largest_small_ = 0;
      return false;
    }
    largest_small_ = std::max(largest_small_, bytes);
    if (++small_runs_ < kPatience) return false;
    wanted = largest_small_;
  }
  return replace(wanted);
}

bool Arena::grow(int64_t bytes) {
  return (bytes > capacity_ || data_ == nullptr) && replace(bytes);
}

bool Arena::replace(int64_t wanted) {
  if (capacity_ >= kLarge && wanted >= kLarge) {
    data_ = resize(data_, capacity_, wanted, kArena);
  } else {
    release();  // before taking, so that both never exist at once
    data_ = take(wanted, kArena);
  }
  capacity_ = wanted;
  small_runs_ = 0;
  largest_small_ = 0;
  return true;
}

}  // namespace dvm
