// Which instruction-set levels this CPU runs. The dispatcher asks, and so does a build for this
// machine alone (native_levels.cpp): it needs nothing else.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace dvm {

#if defined(__x86_64__)

inline bool runs_x86_64() { return true; }

inline bool runs_x86_64_v3() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2") &&  // Clang does not know the next one by name
         __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

inline bool runs_x86_64_v4() {
  return runs_x86_64_v3() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

inline bool runs_x86_64_v4_bf16() {
  return runs_x86_64_v4() && __builtin_cpu_supports("avx512bf16");
}

inline bool runs_x86_64_v4_vnni() {
  return runs_x86_64_v4() && __builtin_cpu_supports("avx512vnni");
}

// Tiles, of bytes and of bf16: Linux grants a process the use of their registers, 8 KiB in all, for
// good; children inherit it.
inline bool runs_x86_64_v4_amx() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  constexpr unsigned kTiles = 1U << 24, kBytes = 1U << 25, kBf16 = 1U << 22;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!runs_x86_64_v4_bf16() || !runs_x86_64_v4_vnni() || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
    return false;
  constexpr unsigned kAll = kTiles | kBytes | kBf16;
  return (d & kAll) == kAll && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

#endif

inline bool runs_portable() { return true; }

}  // namespace dvm
