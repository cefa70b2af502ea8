// Builds kernel plans for tests, and holds the buffers that they run on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/plan.h"
#include "vm/compile.h"
#include "vm/core.h"

namespace dvm::testing {

struct PlanBuilder {
  KernelPlan plan;
  std::vector<int64_t> dims;
  std::vector<ValueInfo> values;
  std::vector<int64_t> value_elements;

  DimSlot slot(int64_t value);
  std::vector<DimSlot> slots(const std::vector<int64_t>& numbers);
  int axis(int64_t extent);
  int64_t extent(int axis) const { return dims[plan.extents[axis]]; }
  uint32_t all_axes() const { return (1u << plan.extents.size()) - 1; }

  int32_t value(DType dtype, int64_t elements);
  // A new value that holds the axes densely in this order (outermost first), after `offset`
  // elements, with `padding` elements behind each row of the first axis.
  Access dense(DType dtype, const std::vector<int>& axes, int64_t offset = 0, int64_t padding = 0);

  int32_t load(const Access& access, uint32_t axes);
  void store(int32_t input, const Access& access, uint32_t axes);
  // Dense in axis order.
  int32_t input(DType dtype, uint32_t axes);
  void output(int32_t node, DType dtype);
  int32_t fill(DType dtype, double scalar);
  int32_t map(PlanOp op, const std::vector<int32_t>& inputs);
  int32_t cast(int32_t input, DType dtype);
  int32_t reduce(PlanOp op, int32_t input, uint32_t axes);
  int32_t matmul(int32_t a, int32_t b);
  int32_t inner_matmul(int32_t a, int32_t b);
  int32_t iota(int64_t base, const std::vector<int64_t>& strides, uint32_t axes);
  int32_t lookup(int32_t bytes, DType dtype);  // in a table of its own
  int32_t gather(int32_t index, const Access& access, int64_t limit, int64_t stride, uint32_t axes);

  std::vector<int> axis_list(uint32_t axes) const;
};

// The buffers of one run; `table()` is what run_tiles wants.
class Buffers {
 public:
  Buffers(const std::vector<ValueInfo>& values, int64_t workspace_bytes);
  std::byte* const* table() const { return table_.data() + kReservedBuffers; }
  std::byte* at(size_t value) const { return table_[value + kReservedBuffers]; }
  // Small multiples of a quarter (floats), small integers, booleans.
  void randomise(const std::vector<ValueInfo>& values, std::mt19937& random);
  void copy_from(const Buffers& other, const std::vector<ValueInfo>& values);

 private:
  std::vector<std::vector<std::byte>> storage_;
  std::vector<std::byte*> table_;
};

// The first difference between two sets of buffers beyond a relative tolerance, or nothing.
std::string difference(const std::vector<ValueInfo>& values, const Buffers& want,
                       const Buffers& got, double tolerance);

// Runs all stages with this many cores, tiles dealt out in claims; returns the first trap.
Trap run_kernel(const CompiledKernel& kernel, const InstructionTable& table, int cores,
                size_t local_bytes, std::byte* const* buffers);

}  // namespace dvm::testing
