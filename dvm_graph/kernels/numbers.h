// Arithmetic on extents and sets of axes.
#pragma once

#include <cstdint>

namespace dvm {

// The set of one axis.
constexpr uint32_t bit(int axis) { return 1u << axis; }

// Of numbers that are not negative.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// No sum of products of numbers that are checked against this overflows.
inline constexpr int64_t kTooFar = int64_t{1} << 55;

constexpr bool beyond(int64_t number, int64_t limit) { return number > limit || number < -limit; }

}  // namespace dvm
