// What sums end as in passing (isa.def): what it means, and drawn ones.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "check.h"
#include "machine.h"

namespace dvm::test {

struct DrawnEnding {
  double low = -HUGE_VAL, high = HUGE_VAL, slope = 0, offset = 0;

  bool gates() const { return slope != 0; }
  // NaN passes the bounds.
  template <class T>
  T bounded(T number) const {
    if (number < static_cast<T>(low)) return static_cast<T>(low);
    return number > static_cast<T>(high) ? static_cast<T>(high) : number;
  }
  template <class T>
  T gate(T sum) const {
    return bounded(sum * static_cast<T>(slope) + static_cast<T>(offset));
  }
  template <class T>
  T of(T sum) const {
    return gates() ? sum * gate(sum) : bounded(sum);
  }
  // How much more an error of a sum counts behind it.
  template <class T>
  T steepness(T sum) const {
    return gates() ? std::fabs(gate(sum)) + std::fabs(sum * static_cast<T>(slope)) + 1 : 1;
  }

  template <class T>
  std::vector<int64_t> words() const {
    std::vector<int64_t> words;
    for (const double number : {low, high, slope, offset}) {
      const auto element = static_cast<T>(number);
      int64_t bits = 0;
      std::memcpy(&bits, &element, sizeof element);
      words.push_back(bits);
    }
    return words;
  }
};

// Of small whole numbers it makes such, or halves of them.
inline DrawnEnding random_ending(Random& random) {
  DrawnEnding ending;
  if (random.chance(0.3)) {
    ending.low = static_cast<double>(random.integer(-3, 0));
    ending.high = static_cast<double>(random.integer(0, 6));
    ending.slope = random.chance(0.5) ? 0.5 : -1;
    ending.offset = static_cast<double>(random.integer(-2, 3));
    return ending;
  }
  if (random.chance(0.5)) ending.low = static_cast<double>(random.integer(-20, 5));
  if (random.chance(0.5)) ending.high = static_cast<double>(random.integer(6, 30));
  return ending;
}

// The words of a window, and those behind it.
inline std::vector<int64_t> words_of(const Window& w, const std::vector<int64_t>& behind = {}) {
  std::vector<int64_t> words(kWindowWords);
  std::memcpy(words.data(), &w, sizeof w);
  words.insert(words.end(), behind.begin(), behind.end());
  return words;
}

}  // namespace dvm::test
