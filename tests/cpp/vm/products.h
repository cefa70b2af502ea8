// Products on a core whose cube unit has local memories of its own: values against the reference
// evaluation of plans, for every order of queues that flags permit, and what a missing flag does.
#pragma once

namespace dvm::testing {

void check_products();

}  // namespace dvm::testing
