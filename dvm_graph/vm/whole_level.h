// Which numbers are levels that sums may be rounded to (isa.h): asked of plans and of tile code.
#pragma once

#include <cmath>
#include <optional>

#include "vm/isa.h"

namespace dvm {

inline std::optional<int64_t> whole_level(double number) {
  if (!(std::abs(number) <= kFarthestLevel) || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace dvm
