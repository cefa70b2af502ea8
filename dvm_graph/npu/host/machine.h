// A CPU as a device: the sizes of its caches and what things cost on it, as data. npu/machine.py
// finds the numbers: measured, from the table of the CPU's family, or from a user's file.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "npu/host/level_info.h"
#include "vm/core.h"
#include "vm/target.h"

namespace dvm {

struct Caches {
#define DVM_CACHE(name, unit, least, most, meaning) int64_t name = 0;
#include "npu/host/machine.def"

  auto operator<=>(const Caches&) const = default;
};

struct Machine {
  std::string name;
  Caches caches;
  Costs costs;

  auto operator<=>(const Machine&) const = default;
};

// What the run-time compiler should know about so many cores of the machine, at a level of the
// instruction set.
Target host_target(int cores, const LevelInfo& level, const Machine& machine);

}  // namespace dvm
