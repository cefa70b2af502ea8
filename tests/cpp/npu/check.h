// A minimal test frame: CHECK counts failures and prints where and with which parameters.
#pragma once

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

namespace dvm::test {

inline int failures = 0;
inline std::string context;  // what the failing case was; set by the test before its checks

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      if (++dvm::test::failures <= 20)                                               \
        std::printf("%s:%d: CHECK(%s) failed: %s\n", __FILE__, __LINE__, #condition, \
                    dvm::test::context.c_str());                                     \
    }                                                                                \
  } while (0)

inline int report(const char* name) {
  std::printf("%s: %s (%d failures)\n", name, failures == 0 ? "ok" : "FAILED", failures);
  return failures == 0 ? 0 : 1;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t integer(int64_t low, int64_t high) {  // both ends included
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  double real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  bool chance(double probability) { return real(0, 1) < probability; }
  template <class T, size_t N>
  T pick(const T (&choices)[N]) {
    return choices[integer(0, static_cast<int64_t>(N) - 1)];
  }
  uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace dvm::test
