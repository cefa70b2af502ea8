// How long kernels take to compile, for benchmarks.
#pragma once

#include <string>
#include <vector>

#include "runtime/model.h"
#include "vm/target.h"

namespace dvm {

// Of one distinct kernel; compilation includes the check of the programs.
struct CompileTime {
  std::string kernel;  // the first of those that share the programs
  int64_t first_ns = 0, median_ns = 0, least_ns = 0;
};

// Compiles every distinct kernel whose dims are known `repeats` times, one behind the other, so
// that all but the first find their own code and data in the caches.
std::vector<CompileTime> compile_times(const Model& model, const Dims& dims, const Target& target,
                                       int repeats);

}  // namespace dvm
