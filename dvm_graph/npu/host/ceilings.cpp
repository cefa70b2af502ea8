#include "npu/host/ceilings.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace dvm {
namespace {

constexpr int64_t kSteps = 400'000;  // some milliseconds
constexpr size_t kAllBuffers = size_t{256} << 20;
constexpr size_t kSmallestBuffer = size_t{4} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

// Without it the scheduler may leave two threads on one CPU for the whole of a short measurement.
void pin(const cpu_set_t& allowed, int core) {
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed) || core-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

// Seconds of the fastest try, from a common start until the last of the threads is done.
template <class Work>
double fastest(int cores, int tries, const Work& work) {
  using Clock = std::chrono::steady_clock;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_ZERO(&allowed);
  std::barrier together(cores);
  double best = 1e9;
  const auto run = [&](int core) {
    pin(allowed, core);
    for (int attempt = 0; attempt < tries; attempt++) {
      together.arrive_and_wait();
      const Clock::time_point start = Clock::now();
      work(core, attempt);
      together.arrive_and_wait();
      const std::chrono::duration<double> elapsed = Clock::now() - start;
      if (core == 0) best = std::min(best, elapsed.count());
    }
  };
  std::vector<std::jthread> threads;
  for (int core = 0; core < cores; core++) threads.emplace_back(run, core);
  threads.clear();  // joins them
  return best;
}

const Limits& limits_of(const InstructionTable& table) {
  return *std::ranges::find(available_levels(), &table, &Level::table)->limits;
}

}  // namespace

void CeilingMeter::FreeBuffer::operator()(float* buffer) const { std::free(buffer); }

CeilingMeter::CeilingMeter(int cores, const InstructionTable& table) : limits_(limits_of(table)) {
  const auto each = kAllBuffers / (2 * static_cast<size_t>(cores));
  const size_t bytes = std::max(each / kHugePage * kHugePage, kSmallestBuffer);
  count_ = static_cast<int64_t>(bytes / sizeof(float));
  for (int core = 0; core < cores; core++) {
    for (std::vector<Buffer>* buffers : {&from_, &to_}) {
      auto* buffer = static_cast<float*>(std::aligned_alloc(kHugePage, bytes));
      if (buffer == nullptr) throw std::bad_alloc();
      buffers->emplace_back(buffer);
      madvise(buffer, bytes, MADV_HUGEPAGE);
      std::memset(buffer, 0, bytes);
    }
  }
}

Ceilings CeilingMeter::measure() {
  const int cores = static_cast<int>(from_.size());
  const auto bytes = static_cast<double>(count_) * sizeof(float) * cores;
  std::vector<int64_t> operations(from_.size());
  const double multiplying = fastest(cores, 4, [&](int core, int) {
    operations[static_cast<size_t>(core)] = limits_.multiply_add(kSteps);
  });
  // Around the caches, or as the C library thinks best: which is faster differs between CPUs.
  const double copying = fastest(cores, 4, [&](int core, int attempt) {
    float* to = to_[static_cast<size_t>(core)].get();
    const float* from = from_[static_cast<size_t>(core)].get();
    if (attempt % 2 == 0) {
      limits_.copy(to, from, count_);
    } else {
      std::memcpy(to, from, static_cast<size_t>(count_) * sizeof(float));
    }
  });
  const double reading = fastest(cores, 2, [&](int core, int) {
    limits_.read(from_[static_cast<size_t>(core)].get(), count_);
    limits_.read(to_[static_cast<size_t>(core)].get(), count_);
  });
  return {static_cast<double>(operations[0] * cores) / multiplying, 2 * bytes / copying,
          2 * bytes / reading};
}

}  // namespace dvm
