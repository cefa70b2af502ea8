// Assertions of the C++ tests: a failure is printed and counted, and the test goes on.
#pragma once

#include <cstdio>

namespace dvm::testing {

inline int failures = 0;
inline int checks = 0;

}  // namespace dvm::testing

#define CHECK(condition, ...)                                            \
  do {                                                                   \
    ++dvm::testing::checks;                                              \
    if (!(condition)) {                                                  \
      ++dvm::testing::failures;                                          \
      std::printf("%s:%d: %s failed: ", __FILE__, __LINE__, #condition); \
      std::printf(__VA_ARGS__);                                          \
      std::printf("\n");                                                 \
    }                                                                    \
  } while (false)
