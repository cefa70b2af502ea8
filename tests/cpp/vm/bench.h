// Compile times of common kernels, and their programs as text.
#pragma once

namespace dvm::testing {

int run_bench();
int run_show();

}  // namespace dvm::testing
