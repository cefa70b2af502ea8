// The build's question what this machine needs: prints the best level that its CPU runs, and what
// goes with it, as a list of CMake. A program of its own, compiled and run where DVM_LEVELS is
// `native`.
#include <cstdio>

#include "npu/host/cpu.h"

int main() {
#if defined(__x86_64__)
  std::fputs(dvm::runs_x86_64_v4()   ? "x86-64-v4"
             : dvm::runs_x86_64_v3() ? "x86-64-v3"
                                     : "x86-64",
             stdout);
  if (dvm::runs_x86_64_v4_bf16()) std::fputs(";x86-64-v4-bf16", stdout);
  if (dvm::runs_x86_64_v4_vnni()) std::fputs(";x86-64-v4-vnni", stdout);
  if (dvm::runs_x86_64_v4_amx()) std::fputs(";x86-64-v4-amx", stdout);
#else
  std::fputs("portable", stdout);
#endif
  return 0;
}
