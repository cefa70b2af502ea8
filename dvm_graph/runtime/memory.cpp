#include "runtime/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "npu/host/control_groups.h"
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

// What the limits of the process itself (ulimit -v, -d) leave of its addresses.
int64_t available_addresses() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long long pages = 0, data_pages = 0;
  const bool known =
      file != nullptr && std::fscanf(file, "%lld %*d %*d %*d %*d %lld", &pages, &data_pages) == 2;
  if (file != nullptr) std::fclose(file);
  int64_t available = std::numeric_limits<int64_t>::max();
  for (const auto& [limit_of, used] : {std::pair{RLIMIT_AS, pages}, {RLIMIT_DATA, data_pages}}) {
    rlimit limit;
    if (!known || getrlimit(limit_of, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const auto bytes = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, available));
    available = std::min(available, std::max<int64_t>(bytes - used * sysconf(_SC_PAGESIZE), 0));
  }
  return available;
}

std::string mebibytes(int64_t bytes) {
  return bytes < (1 << 20) ? std::to_string(bytes) + " bytes"
                           : std::to_string(bytes >> 20) + " MiB";
}

[[noreturn]] void out_of_memory(int64_t bytes, const char* what) {
  const int64_t available = available_memory();
  const std::string wanted = std::string(what) + " would take " + mebibytes(bytes);
  // There may seem to be enough: in one piece there is not, or the system promises no more.
  throw OutOfMemoryError(
      (bytes > available - kReserve
           ? wanted + ", but only " + mebibytes(std::max<int64_t>(available - kReserve, 0)) +
                 " are available beside a reserve of " + mebibytes(kReserve)
           : wanted + ", which the system refuses, although it counts " + mebibytes(available) +
                 " as available (a limit on mappings or on what it promises, "
                 "vm.overcommit_memory)") +
      "; run smaller shapes, or fewer models at once");
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
    memory = ::operator new(static_cast<size_t>(rounded), std::align_val_t(kBufferAlignment),
                            std::nothrow);
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
    ::operator delete(memory, std::align_val_t(kBufferAlignment));
  }
}

}  // namespace

int64_t available_memory() {
  return std::min({available_in_system(), memory_of_control_groups(), available_addresses()});
}

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
