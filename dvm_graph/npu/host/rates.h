// What this machine's caches, memory and cube units do in a second, measured on all cores at once.
#pragma once

#include "npu/host/levels.h"
#include "npu/host/machine.h"

namespace dvm {

// Costs of a machine whose caches are known; 0 where nothing is measured. Takes a second or two and
// 192 MiB for each core, at most 1 GiB; interleaves its repeats, and takes the best of what a core
// does alone and the median of what it shares with others.
Costs measure_rates(int cores, const InstructionTable& table, const Caches& caches);

}  // namespace dvm
