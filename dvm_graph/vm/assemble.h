// Reads the text form of disassemble.h back: assemble(disassemble(p)) == p, word for word.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "vm/program.h"

namespace dvm {

class AssemblyError : public std::runtime_error {
 public:
  AssemblyError(int line, const std::string& message);
  int line() const { return line_; }  // 1-based

 private:
  int line_;
};

// Throws AssemblyError. The result is well-formed as words but not verified: see verify.h.
Program assemble(std::string_view text);

}  // namespace dvm
