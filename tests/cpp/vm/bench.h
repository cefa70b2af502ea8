// Compile times of common kernels.
#pragma once

namespace dvm::testing {

int run_bench();

}  // namespace dvm::testing
