// The distinct kernels of a model. Layers repeat, so most kernels differ from others only in the
// buffers that they touch. Equal kernels are one *kernel over arguments*: compiled once for the
// shape at hand, and launched on as many lists of values as the model has calls of it.
//
// Kernels are equal where their nodes, dim slots and axes are, and their arguments agree in dtype
// and in the slots that decide their sizes (constants: in their sizes). Then the programs are equal
// for every shape, and verified for one list of arguments they hold for all.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model.h"

namespace dvm {

struct DistinctKernel {
  KernelPlan plan;             // nameless; accesses count arguments instead of the model's values
  std::vector<DimSlot> slots;  // all that the programs depend on, ascending
  Apart apart = Apart::if_needed;
};

// What a kernel of the model is: arguments[i] is the value that takes the place of argument i.
struct BoundKernel {
  uint32_t kernel = 0;
  std::vector<uint32_t> arguments;
};

struct KernelTable {
  std::vector<DistinctKernel> kernels;
  std::vector<BoundKernel> bound;  // by index into Model::kernels
};

KernelTable make_kernel_table(const Model& model);

}  // namespace dvm
