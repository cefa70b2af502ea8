// Whether what a program has ahead of its code is consistent: the header, the grid, and the
// registers, which stay inside of their buffers for every tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/plan.h"
#include "vm/program.h"
#include "vm/target.h"
#include "vm/verify_fault.h"

namespace dvm {

bool verify_header(const Program& program, const ValueInfo* values, size_t value_count,
                   int64_t workspace_bytes, const Target& target, Fault& fail);

}  // namespace dvm
