// What products of floats take that a cube unit splits into parts of fewer bits, and multiplies in
// tiles: no device but a host whose instructions do so has it. In multiply-adds of its other way.
// Nothing else is included here, for code of instruction-set levels includes this
// (npu/host/simd.h).
#pragma once

namespace dvm {

struct Splitting {
  int rows = 0;         // of A that are multiplied at a time; 0: the cube unit does not split
  double multiply = 0;  // a multiply-add of all parts
  double a = 0, b = 0;  // splitting an element; one of B also waits for memory, whatever is ahead
};

}  // namespace dvm
