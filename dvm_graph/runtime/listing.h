// The programs of a model for given dims, as text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/model.h"
#include "vm/target.h"

namespace dvm {

// Name of the kernel and disassembly of its programs, in the order of launches. Of a call and its
// fallback, those that would run. Kernels whose dims are not all known are left out.
std::vector<std::pair<std::string, std::string>> list_programs(const Model& model, const Dims& dims,
                                                               const Target& target);

}  // namespace dvm
