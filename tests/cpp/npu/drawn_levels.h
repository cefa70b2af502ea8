// Levels that sums of bytes are rounded to: what they mean, and drawn ones.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "check.h"
#include "machine.h"
#include "operands.h"

namespace dvm::test {

// Step by step, as decompose/casts.py has it.
inline int64_t level_of(float scaled, const Levels& levels) {
  if (std::isnan(scaled)) return levels.low;
  const auto level = std::nearbyint(static_cast<double>(scaled)) + static_cast<double>(levels.zero);
  return static_cast<int64_t>(
      std::clamp(level, static_cast<double>(levels.low), static_cast<double>(levels.high)));
}

inline Levels random_levels(Random& random, bool is_signed) {
  if (random.chance(0.3)) return {3, 100, 3};
  return {is_signed ? -128 : 0, is_signed ? 127 : 255, random.integer(is_signed ? -128 : 0, 127)};
}

inline float random_factor(Random& random) {
  using Limits = std::numeric_limits<float>;
  constexpr float kOdd[] = {
      0, -0.25f, 0.5f, 1, 1e30f, 1e-30f, Limits::infinity(), Limits::quiet_NaN()};
  const auto usual = static_cast<float>(std::exp2(random.real(-20, 2)));
  return random.chance(0.1) ? random.pick(kOdd) : usual;
}

// The one element of an array, as an immediate.
template <class T>
Place number_of(const Array<T>& array) {
  const T number = array.at(0, 0, 0);
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof number);
  return Place{nullptr, {}, true, bits};
}

}  // namespace dvm::test
