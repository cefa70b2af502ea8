#include <algorithm>

#include "kernels/normalise.h"

namespace dvm {

bool NormalPlan::is_open() const {
  return std::any_of(open.begin(), open.begin() + rank,
                     [](const OpenAxis& axis) { return axis.is_open(); });
}

uint32_t NormalPlan::reduced_axes() const {
  uint32_t axes = 0;
  for (const NormalNode& node : nodes) axes |= node.reduce_axes;
  return axes;
}

}  // namespace dvm
