#include "measure.h"

#include <cstring>

namespace dvm::bench {
namespace {

constexpr int kSteps = 2000;

#if defined(__x86_64__)
// `chains` of multiply-adds, as many as there are registers for.
#define DVM_PEAK(name, isa, bytes, chains)                                                 \
  __attribute__((target(isa))) double name() {                                             \
    typedef float V __attribute__((vector_size(bytes)));                                   \
    V sum[chains] = {};                                                                    \
    V a = 1e-6f - V{}, b = 0.999f - V{};                                                   \
    asm volatile("" : "+m"(a), "+m"(b));                                                   \
    const double seconds = seconds_of(                                                     \
        [&]() __attribute__((target(isa))) {                                               \
          V s[chains];                                                                     \
          _Pragma("GCC unroll 32") for (int c = 0; c < chains; c++) s[c] = sum[c];         \
          const V x = a, y = b;                                                            \
          for (int i = 0; i < kSteps; i++)                                                 \
            _Pragma("GCC unroll 32") for (int c = 0; c < chains; c++) s[c] = s[c] * y + x; \
          _Pragma("GCC unroll 32") for (int c = 0; c < chains; c++) sum[c] = s[c];         \
        },                                                                                 \
        20);                                                                               \
    asm volatile("" : : "m"(sum));                                                         \
    return 2.0 * chains * kSteps * (bytes / 4) / seconds;                                  \
  }
DVM_PEAK(peak_v4, "avx512f,fma", 64, 24)
DVM_PEAK(peak_v3, "avx2,fma", 32, 12)
#undef DVM_PEAK
#endif

}  // namespace

double peak_flops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return peak_v4();
  if (__builtin_cpu_supports("avx2")) return peak_v3();
#endif
  return 0;
}

double copy_bandwidth(size_t bytes) {
  std::vector<char> from(bytes, 1), to(bytes);
  const int repeats = static_cast<int>(std::max<size_t>(1, (size_t{1} << 26) / bytes));
  const double seconds = seconds_of([&] { std::memcpy(to.data(), from.data(), bytes); }, repeats);
  asm volatile("" : : "m"(*to.data()));
  return 2.0 * static_cast<double>(bytes) / seconds;
}

}  // namespace dvm::bench
