// Checks that threads may make too: each failure is printed and counted.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>

namespace dvm::testing {

inline std::atomic<int> failures{0};

inline void check(bool holds, const std::string& what) {
  if (holds) return;
  failures++;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

template <typename Error, typename Action>
void check_throws(const Action& action, const std::string& what) {
  try {
    action();
  } catch (const Error&) {
    return;
  }
  check(false, what + " does not throw");
}

// The exit status of a test program.
inline int report() {
  std::printf("%d failures\n", failures.load());
  return failures == 0 ? 0 : 1;
}

}  // namespace dvm::testing
