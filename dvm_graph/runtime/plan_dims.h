// Kernel plans at the dims of a run: the slots they depend on, whether they run, their compilation.
#pragma once

#include <string>
#include <vector>

#include "runtime/model.h"
#include "vm/compile.h"

namespace dvm {

// All slots of a plan (extents, accesses, nodes); may repeat.
std::vector<DimSlot> slots_of(const KernelPlan& plan);
// Without the strides of accesses.
std::vector<DimSlot> slots_beside_strides(const KernelPlan& plan);
// And without extents.
std::vector<DimSlot> slots_beside_extents(const KernelPlan& plan);

// How far rows lie apart, which says nothing where the extent of their axis is 1.
struct StrideSlot {
  DimSlot stride = kNoSlot, extent = kNoSlot;

  auto operator<=>(const StrideSlot&) const = default;
};
// Those of accesses; may repeat.
std::vector<StrideSlot> strides_of(const KernelPlan& plan);

// True where the call has no guard or its value is not 0. A guard without a value does not hold.
bool guard_holds(const KernelCall& call, const Dims& dims);

// compile_kernel at these dims. Throws ShapeError where they give an extent below 0, CompileError
// for anything else; both name the kernel by `name`.
CompileStatus compile_plan(const KernelPlan& plan, const std::string& name, const Dims& dims,
                           const ValueInfo* values, const Target& target, CompilerScratch& scratch,
                           CompiledKernel& out, Apart apart, const int64_t* room = nullptr);

}  // namespace dvm
