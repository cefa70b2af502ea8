// The instruction-set levels this build has code for, and which of them this CPU can run.
#pragma once

#include <span>
#include <string_view>

#include "npu/host/machine.h"
#include "npu/host/units.h"
#include "vm/core.h"

namespace dvm {

struct Level {
  const InstructionTable* table;
  const LevelInfo* info;
  const Limits* limits;
};

// The levels this CPU supports, best first. Empty where the build was for another machine alone.
std::span<const Level> available_levels();

// The names of all that this build has code for, best first.
std::span<const std::string_view> built_levels();

// The best of those available; throws std::runtime_error where there are none.
const InstructionTable& best_table();

// The table of an available level ("x86-64", "x86-64-v3", "x86-64-v4", "portable"); null if there
// is none of that name here.
const InstructionTable* table_by_name(std::string_view name);

// Of an available level.
const Limits& limits_of(const InstructionTable& table);

// What the run-time compiler should know about so many cores of a machine with these instructions.
Target host_target(int cores, const InstructionTable& table, const Machine& machine);

}  // namespace dvm
