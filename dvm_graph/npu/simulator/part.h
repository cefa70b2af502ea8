// A part as the timing model knows it: the numbers of part.def, and what instructions cost by name.
#pragma once

#include <array>
#include <string>

#include "vm/isa.h"

namespace dvm {

struct NpuPart {
  std::string label;
#define DVM_PART(section, name, unit, least, most, meaning) double section##_##name = 0;
#include "npu/simulator/part.def"
  // Of the vector unit, for as many bytes of results as it gives in a cycle (section cycles).
  std::array<double, kFamilies> cycles{};

  double vector_per_cube() const { return cores_vector / cores_cube; }
  // What transfers in flight share, in bytes per cycle.
  double memory_rate() const { return bandwidth_hbm * bandwidth_hbm_efficiency / cores_frequency; }
  double l2_rate() const { return bandwidth_hbm * bandwidth_l2_over_hbm / cores_frequency; }
};

}  // namespace dvm
