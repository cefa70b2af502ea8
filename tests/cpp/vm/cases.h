// Cases that random plans do not reach: empty and huge reductions, traps, prefetches.
#pragma once

namespace dvm::testing {

void check_cases();

}  // namespace dvm::testing
