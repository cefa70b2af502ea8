// Texts that are no programs, and programs that would do harm.
#pragma once

namespace dvm::testing {

void check_rejections();

}  // namespace dvm::testing
