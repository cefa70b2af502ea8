// What products of floats take that a cube unit splits into parts of fewer bits, and multiplies in
// tiles: no device but a host whose instructions do so has it. Nothing else is included here, for
// code of instruction-set levels includes this (npu/host/simd.h).
#pragma once

namespace dvm {

struct Splitting {
  int rows = 0;      // of A that are multiplied at a time; 0: the cube unit does not split
  int percent = 0;   // of the time of its other multiply-adds that those of parts take
  int a = 0, b = 0;  // what splitting an element takes, in multiply-adds
};

}  // namespace dvm
