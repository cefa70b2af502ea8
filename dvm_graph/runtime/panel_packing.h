// Packs the constant B operands of matmuls into panels (vm/panels.h), once, when a model is loaded.
#pragma once

#include <cstdint>

#include "kernels/transforms.h"
#include "runtime/memory.h"
#include "runtime/model.h"
#include "vm/core.h"
#include "vm/target.h"

namespace dvm {

// B[batch, k, n] of a constant, seen through strides and an offset in elements.
struct PanelSource {
  const std::byte* data = nullptr;
  int64_t bytes = 0;  // of the whole constant
  DType dtype = DType::f32;
  DType panels = DType::f32;  // dtype of the panels: `dtype`, its register dtype or, bundles of
                              // rounded floats, bf16
  bool bundles = false;
  int64_t batch = 1, k = 0, n = 0;
  int64_t batch_stride = 0, k_stride = 0, n_stride = 0;
  int64_t offset = 0;
  int64_t transformed = 0;  // slices of 3 x 3 taps that k are, behind which lie their transforms
  bool mapped = false;      // read-only pages of a file: dropped from memory afterwards

  int64_t rows() const { return transformed > 0 ? k * kTransformedRows : k; }
};

// The packed buffer, from `store`; packed by the device's own instructions on as many threads as
// the target has cores. Throws CompileError if the view leaves the constant.
Tensor pack_constant(const PanelSource& source, const Target& target, const InstructionTable& table,
                     Store& store);

}  // namespace dvm
