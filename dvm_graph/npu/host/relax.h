// What a core does between two looks at memory that another one will write.
#pragma once

#include <sched.h>

namespace dvm {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once `arrived()`. Gives way now and then: who is waited for may need this very CPU.
template <typename Condition>
void spin_until(Condition arrived) {
  constexpr int kSpinsPerYield = 4096;
  for (int spins = 1; !arrived(); spins++) {
    relax();
    if (spins % kSpinsPerYield == 0) sched_yield();
  }
}

}  // namespace dvm
