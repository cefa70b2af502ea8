// The exact text of programs for targets that no device of this machine is.
#pragma once

namespace dvm::testing {

void check_listings();

}  // namespace dvm::testing
