// Timing for the unit benchmarks. Time is the thread's CPU time, so that a neighbour on the same
// core does not count; figures are ratios to a peak measured in the same, interleaved run.
#pragma once

#include <time.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace dvm::bench {

inline double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double seconds_of(const std::function<void()>& body, int repeats) {
  const double start = cpu_seconds();
  for (int i = 0; i < repeats; i++) body();
  return (cpu_seconds() - start) / repeats;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// f32 FLOP per second of independent FMAs in registers, at the widest level of this CPU.
double peak_flops();

// Bytes per second of copying (read plus write) between two buffers of this size.
double copy_bandwidth(size_t bytes);

}  // namespace dvm::bench
