// Threads that measure together: one pinned to each core, from a common start until the last is
// done.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace dvm {

// Without it the scheduler may leave two threads on one CPU for the whole of a short measurement.
inline void pin(const cpu_set_t& allowed, int core) {
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed) || core-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

// Seconds of each of so many tries of `work(core, attempt)`.
template <class Work>
std::vector<double> seconds_together(int cores, int tries, const Work& work) {
  using Clock = std::chrono::steady_clock;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_ZERO(&allowed);
  std::barrier together(cores);
  std::vector<double> seconds(static_cast<size_t>(tries));
  const auto run = [&](int core) {
    pin(allowed, core);
    for (int attempt = 0; attempt < tries; attempt++) {
      together.arrive_and_wait();
      const Clock::time_point start = Clock::now();
      work(core, attempt);
      together.arrive_and_wait();
      const std::chrono::duration<double> elapsed = Clock::now() - start;
      if (core == 0) seconds[static_cast<size_t>(attempt)] = elapsed.count();
    }
  };
  std::vector<std::jthread> threads;
  for (int core = 0; core < cores; core++) threads.emplace_back(run, core);
  threads.clear();  // joins them
  return seconds;
}

struct FreeBuffer {
  void operator()(float* buffer) const { std::free(buffer); }
};
using MeasuredBuffer = std::unique_ptr<float, FreeBuffer>;

// Zeros, in huge pages where the system gives any. `bytes`: a multiple of 2 MiB.
inline MeasuredBuffer measured_buffer(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  auto* buffer = static_cast<float*>(std::aligned_alloc(kHugePage, bytes));
  if (buffer == nullptr) throw std::bad_alloc();
  madvise(buffer, bytes, MADV_HUGEPAGE);
  std::memset(buffer, 0, bytes);
  return MeasuredBuffer(buffer);
}

}  // namespace dvm
