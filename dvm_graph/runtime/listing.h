// The programs of a model for given dims, as text.
#pragma once

#include <string>
#include <vector>

#include "runtime/model.h"
#include "vm/target.h"

namespace dvm {

struct Listing {
  std::string kernel;  // with the body of control flow that it is in: "If (r) body 0/k0_add"
  std::string text;    // disassembly of its programs
  std::string why;     // it runs in this form: "in place of ..., whose ..."; empty where it is the
                       // intended one
  std::string steps;   // tile code behind each step of the compiler, where that was asked for
};

// Kernels in the order of launches, those of control flow where it is. Of a call and its fallback,
// those that would run. Kernels whose dims are not all known are left out.
std::vector<Listing> list_programs(const Model& model, const Dims& dims, const Target& target,
                                   bool steps);

}  // namespace dvm
