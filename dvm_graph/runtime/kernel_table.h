// The distinct kernels of a model. Layers repeat, so most kernels differ from others only in the
// buffers that they touch. Equal kernels are one *kernel over arguments*: compiled once for the
// shape at hand, and launched on as many lists of values as the model has calls of it.
//
// Kernels are equal where their nodes, dim slots and axes are, and their arguments agree in dtype
// and in the slots that decide their sizes (constants: in their sizes). Then the programs are equal
// for every shape, and verified for one list of arguments they hold for all.
//
// Where a kernel touches a value only at one place, in rows that begin where dims say, the argument
// begins there: then the programs do not depend on where that is. So what stores a part of a concat
// that grows is not compiled anew.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/model.h"
#include "runtime/plan_dims.h"

namespace dvm {

struct DistinctKernel {
  KernelPlan plan;  // nameless; accesses count arguments instead of the model's values
  // All that the programs depend on, ascending; and strides that are not among them.
  std::vector<DimSlot> slots;
  std::vector<StrideSlot> strides;
  // Axes whose extents are others from turn to turn: programs are made for several (vm/resize.h).
  std::vector<char> open;
  // Of slots and strides, those but for the extents of open axes and sizes of arguments.
  std::vector<DimSlot> fixed;
  std::vector<StrideSlot> fixed_strides;
  Apart apart = Apart::if_needed;
};

// What takes the place of an argument: a value, or what of it lies behind so many elements.
struct Argument {
  uint32_t value = 0;
  DimSlot offset = kNoSlot;  // kNoSlot: 0

  bool operator==(const Argument&) const = default;

  // Bytes of the value before it; all where it would lie elsewhere, so that nothing is touched.
  int64_t begin(const int64_t* dims, const ValueInfo* values) const {
    return offset == kNoSlot ? 0 : begin_at(dims[offset], values[value]);
  }
  ValueInfo info(const int64_t* dims, const ValueInfo* values) const {
    return {values[value].dtype, values[value].bytes - begin(dims, values)};
  }

 private:
  static int64_t begin_at(int64_t elements, const ValueInfo& info) {
    const auto size = static_cast<int64_t>(size_of(info.dtype));
    const bool inside = elements >= 0 && elements <= info.bytes / size;
    return inside ? elements * size : std::max<int64_t>(info.bytes, 0);
  }
};

// What a kernel of the model is: arguments[i] takes the place of argument i.
struct BoundKernel {
  uint32_t kernel = 0;
  std::vector<Argument> arguments;
};

struct KernelTable {
  std::vector<DistinctKernel> kernels;
  std::vector<BoundKernel> bound;  // by index into Model::kernels
};

KernelTable make_kernel_table(const Model& model);

}  // namespace dvm
