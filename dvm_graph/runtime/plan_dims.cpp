#include "runtime/plan_dims.h"

#include <stdexcept>

#include "runtime/errors.h"

namespace dvm {

std::vector<DimSlot> slots_of(const KernelPlan& plan) {
  std::vector<DimSlot> slots = slots_beside_strides(plan);
  for (const StrideSlot& slot : strides_of(plan)) slots.push_back(slot.stride);
  return slots;
}

std::vector<DimSlot> slots_beside_strides(const KernelPlan& plan) {
  std::vector<DimSlot> slots = slots_beside_extents(plan);
  slots.insert(slots.end(), plan.extents.begin(), plan.extents.end());
  return slots;
}

std::vector<DimSlot> slots_beside_extents(const KernelPlan& plan) {
  std::vector<DimSlot> slots;
  for (const Access& access : plan.accesses) {
    slots.push_back(access.offset);
  }
  for (const PlanNode& node : plan.nodes) {
    slots.push_back(node.limit);
    slots.push_back(node.offset);
    slots.insert(slots.end(), node.strides.begin(), node.strides.end());
    slots.insert(slots.end(), node.window.begin(), node.window.end());
  }
  std::erase(slots, kNoSlot);
  return slots;
}

std::vector<StrideSlot> strides_of(const KernelPlan& plan) {
  std::vector<StrideSlot> slots;
  for (const Access& access : plan.accesses) {
    for (size_t axis = 0; axis < access.strides.size(); axis++) {
      if (access.strides[axis] == kNoSlot) continue;
      slots.push_back({access.strides[axis], plan.extents[axis]});
    }
  }
  return slots;
}

bool guard_holds(const KernelCall& call, const Dims& dims) {
  return call.guard == kNoSlot || (dims.ok(call.guard) && dims.values()[call.guard] != 0);
}

CompileStatus compile_plan(const KernelPlan& plan, const std::string& name, const Dims& dims,
                           const ValueInfo* values, const Target& target, CompilerScratch& scratch,
                           CompiledKernel& out, Apart apart, const int64_t* room) {
  try {
    return compile_kernel(plan, dims.values(), values, target, scratch, out, apart, room);
  } catch (const std::invalid_argument& error) {
    for (const DimSlot slot : plan.extents) {
      if (dims.values()[slot] >= 0) continue;
      throw ShapeError("an axis of kernel " + name +
                       " gets a negative extent: " + std::to_string(dims.values()[slot]));
    }
    throw CompileError("kernel " + name + ": " + error.what());
  } catch (const std::logic_error& error) {  // an invariant of the compiler is broken
    throw CompileError("kernel " + name + ": " + error.what());
  }
}

}  // namespace dvm
