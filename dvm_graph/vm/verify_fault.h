// What is wrong with a program, as the parts of its verifier find it: the first thing, in words.
#pragma once

#include <string>
#include <utility>

namespace dvm {

class Fault {
 public:
  // False, to be handed on. Out of the way of the checks: they run for every compiled kernel, with
  // cold caches.
  [[gnu::cold, gnu::noinline]] bool operator()(std::string message) {
    message_ = std::move(message);
    return false;
  }
  [[gnu::cold, gnu::noinline]] bool operator()(const char* message) {
    return (*this)(std::string(message));
  }

  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

}  // namespace dvm
