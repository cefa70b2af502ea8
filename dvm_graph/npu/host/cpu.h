// Which instruction-set levels this CPU runs. The dispatcher asks, and so does a build for this
// machine alone (native_levels.cpp): it needs nothing else.
#pragma once

namespace dvm {

#if defined(__x86_64__)

inline bool runs_x86_64() { return true; }

inline bool runs_x86_64_v3() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
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

#else

inline bool runs_portable() { return true; }

#endif

}  // namespace dvm
