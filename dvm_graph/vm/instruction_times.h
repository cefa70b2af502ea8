// What the instructions of a core cost; gathered only while a run is profiled.
//
// Joined instructions (vm/strips.h) run as one: their time is that of the group, which is known by
// the families in it.
#pragma once

#include <cstdint>
#include <span>

#include "vm/isa.h"

namespace dvm {

struct InstructionTimes {
  static constexpr int kMostFamilies = 32, kMostGroups = 16;

  struct Group {
    Family families[kMostFamilies];  // in the order in which they run; no more than these are told
    int size = 0;
    uint64_t ticks = 0, count = 0;

    std::span<const Family> members() const { return {families, static_cast<size_t>(size)}; }
  };

  // Of vm/ticks.h.
  uint64_t ticks[kFamilies] = {};
  uint64_t count[kFamilies] = {};
  uint64_t scalar_ticks = 0;  // moving from tile to tile
  Group groups[kMostGroups];
  int group_count = 0;

  void add(Family family, uint64_t elapsed) {
    ticks[static_cast<int>(family)] += elapsed;
    count[static_cast<int>(family)]++;
  }
  // The instructions from `words` to `end`. Those of one group more than there is room for count
  // for the first instruction.
  void add_group(const uint64_t* words, const uint64_t* end, uint64_t elapsed);
};

}  // namespace dvm
