// What kernels cannot compute. Its Python namesake is in dvm_graph/errors.py.
#pragma once

#include <stdexcept>

namespace dvm::stream {

class UnsupportedError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace dvm::stream
