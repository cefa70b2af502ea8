// Bounds of the compiler's loops. A loop that ends for a reason that is not plain to see where it
// stands takes its steps from a count; where that runs out, an invariant is broken: an error that
// names the loop, never a hang.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace dvm {

class Steps {
 public:
  Steps(size_t most, const char* loop) : left_(most), loop_(loop) {}

  void take() {
    if (left_-- == 0)
      throw std::logic_error(std::string("the compiler's ") + loop_ + " never ends");
  }

 private:
  size_t left_;
  const char* loop_;
};

// For loops that grow the list they walk over: so many steps for each of its elements.
inline Steps steps_over(size_t elements, size_t each, const char* loop) {
  return {(elements + 1) * each, loop};
}

}  // namespace dvm
