// What an instruction-set level tells the compiler of itself. Included by its own code: see simd.h.
#pragma once

#include "vm/splitting.h"

namespace dvm {

struct LevelInfo {
  int vector_bytes;
  int matmul_nr, matmul_mr;  // f32 register block of the cube unit
  Splitting splitting;
};

}  // namespace dvm
