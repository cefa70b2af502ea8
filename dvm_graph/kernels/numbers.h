// Arithmetic on extents and sets of axes.
#pragma once

#include <cstdint>

namespace dvm {

// The set of one axis.
constexpr uint32_t bit(int axis) { return 1u << axis; }

// Of numbers that are not negative.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace dvm
