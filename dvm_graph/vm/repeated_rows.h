// Tensors that are repeated along several of their axes: plans of a load and a store that has axes
// which the load lacks.
//
// Straight from memory every repeat of the innermost row is a move of its own. Where those are
// short, local memory holds the elements repeated axis by axis, the innermost first, until rows are
// long; along the axes outside them rows are copied as a whole.
#pragma once

#include <cstdint>

#include "kernels/normalise.h"
#include "vm/target.h"

namespace dvm {

inline constexpr int64_t kLeastLines = 4;  // of a row that is moved as a whole

struct RepeatedRows {
  int first = -1;     // axis: a long row goes on from there to the innermost one. -1: not such
  uint32_t axes = 0;  // that the load lacks

  bool any() const { return first >= 0; }
};

RepeatedRows repeated_rows(const NormalPlan& plan, const Target& target);

}  // namespace dvm
