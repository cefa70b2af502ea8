// What one run cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dvm {

// One launch, timed because the caller asked for a profile.
struct LaunchProfile {
  std::vector<std::string> kernels;  // side by side; names of plans
  int64_t start_ns = 0, run_ns = 0;  // from the start of the run
  int64_t compile_ns = 0;
};

struct RunStatistics {
  int64_t run_ns = 0;            // wall time of the whole run
  int64_t compile_ns = 0;        // sum over kernels compiled
  int64_t max_compile_ns = 0;    // of one kernel
  int32_t kernels_compiled = 0;  // distinct ones whose dims changed; calls share their programs
  int32_t kernels_launched = 0;
  int32_t fallbacks = 0;    // calls replaced by their fallback
  int64_t arena_bytes = 0;  // memory held for intermediate values
  std::vector<LaunchProfile> profile;
};

}  // namespace dvm
