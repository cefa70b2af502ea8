// What an instruction-set level tells the compiler of itself. Included by its own code: see simd.h.
#pragma once

namespace dvm {

struct LevelInfo {
  int vector_bytes;
  int matmul_nr, matmul_mr;  // f32 register block of the cube unit
  int split_rows = 0;        // of floats whose parts tiles multiply; 0: there are no tiles
};

}  // namespace dvm
