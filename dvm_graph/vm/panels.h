// The packed layout of a matmul's B operand: per batch entry [ceil(n/NR)][k][NR], columns past n
// are 0. NR is Target::matmul_nr for f32 and half of it for f64. Constants are packed once at load
// (Access::packed_panels); their buffer in the model *is* this layout, in dtype f32, f64, f16 or
// bf16. Panels for products that round their operands to bf16, and for those of bytes, hold bundles
// instead (vm/isa.def): [ceil(n/NR)][ceil(k/2)][NR][2] bf16, or [ceil(n/NR)][ceil(k/4)][NR][4] i8.
//
// Levels of a few bits with a scale, and maybe a zero, for each block of k lie as m_matmul_blocks
// has them, [ceil(n/NR)][ceil(k/block)][rows][NR] words of 32 bits: Access::block is not 0, the
// dtype u32.
//
// Where the cube unit has local memories of its own, it is fed with rows: floats that are no
// bundles lie per batch entry as one panel [k][n], n rounded up to whole panels of the above.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"
#include "vm/target.h"

namespace dvm {

// Columns per panel for this register dtype.
inline int64_t panel_columns(DType dtype, const Target& target) {
  return dtype == DType::f64 ? std::max<int64_t>(1, target.matmul_nr / 2) : target.matmul_nr;
}

inline bool packs_rows(DType dtype, const Target& target) {
  return target.has_cube_memories() && dtype != kBundle && dtype != DType::f64;
}

// Size of the packed buffer; also the batch stride is packed_bytes(k, n, 1, ...).
int64_t packed_bytes(int64_t k, int64_t n, int64_t batch, DType dtype, const Target& target);

}  // namespace dvm
