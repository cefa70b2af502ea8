// What the control groups of this process (cgroups, version 1 or 2) leave to it. Every group on the
// way from its own to the root of what it can see limits it: the least of them counts.
#pragma once

#include <cstdint>
#include <string>

namespace dvm {

// CPUs by the quotas, rounded up; INT_MAX where there is none. `root` goes before /proc and /sys.
int cpus_of_control_groups(const std::string& root = "");

// Bytes that could still be taken, counting as free the pages of files that the kernel would give
// back first; INT64_MAX where there is no limit.
int64_t memory_of_control_groups(const std::string& root = "");

}  // namespace dvm
