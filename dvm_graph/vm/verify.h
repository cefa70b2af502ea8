// Checks a program before it runs: never trust a program because we encoded it.
//
// Checked: header and grid are consistent; every opcode exists and takes its dtype; instruction
// lengths match their form and the code size; register numbers are defined; every operand's reach
// over its loops, at the largest extents, stays inside local memory or inside the [low, high) of
// its pointer register, and begins at a multiple of its element; every pointer register's range
// stays inside its buffer for every tile; event flags are in range and paired (each set has its
// wait); the halves of a pair hand on every slot. What data an index holds is not known here:
// gathers check it when they run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/plan.h"
#include "vm/compile.h"
#include "vm/program.h"
#include "vm/target.h"

namespace dvm {

// Returns an empty string, or what is wrong with the program and where.
std::string verify(const Program& program, const ValueInfo* values, size_t value_count,
                   int64_t workspace_bytes, const Target& target);

// All programs of a kernel, and that the halves of its pairs hand over the same blocks.
std::string verify_kernel(const CompiledKernel& kernel, const ValueInfo* values, size_t value_count,
                          const Target& target);

}  // namespace dvm
