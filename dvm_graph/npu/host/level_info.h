// What an instruction-set level tells the compiler of itself. Included by its own code: see simd.h.
#pragma once

namespace dvm {

// What the cube unit takes for products of floats that it splits into parts: rows at a time, percent
// of the time of other multiply-adds, and for each element of A and B in multiply-adds. No rows: it
// does not.
struct Splitting {
  int rows = 0, percent = 0, a = 0, b = 0;
};

struct LevelInfo {
  int vector_bytes;
  int matmul_nr, matmul_mr;  // f32 register block of the cube unit
  Splitting splitting;
};

}  // namespace dvm
