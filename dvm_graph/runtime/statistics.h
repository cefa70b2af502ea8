// What one run cost.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/profile.h"

namespace dvm {

struct RunStatistics {
  int64_t run_ns = 0;            // wall time of the whole run
  int64_t compile_ns = 0;        // sum over kernels compiled, on whichever core
  int64_t max_compile_ns = 0;    // of one kernel
  int32_t kernels_compiled = 0;  // distinct ones whose dims changed; calls share their programs
  int32_t kernels_launched = 0;
  int32_t fallbacks = 0;                      // calls replaced by their fallback
  int64_t arena_bytes = 0;                    // memory held for intermediate values
  std::shared_ptr<const RunProfile> profile;  // null where the run was not profiled
};

}  // namespace dvm
