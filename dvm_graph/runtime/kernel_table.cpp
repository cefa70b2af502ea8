#include "runtime/kernel_table.h"

#include <algorithm>
#include <cmath>

#include "runtime/plan_dims.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

// Which accesses of a model's kernels arguments may begin at.
class Beginnings {
 public:
  explicit Beginnings(const Model& model) : model_(model), nonnegative_(model.dims.nonnegative()) {}

  // What is stored, or loaded by a vector kernel, of a value that is touched nowhere else. Halves
  // are counted in pairs from where the value begins (vm/pairs.h).
  bool may_begin_at(const KernelPlan& plan, size_t index) const {
    const Access& access = plan.accesses[index];
    const DType dtype = model_.values[static_cast<size_t>(access.value)].dtype;
    if (access.offset == kNoSlot || is_number(access.offset) || access.packed_panels ||
        size_of(dtype) < sizeof(float)) {
      return false;
    }
    const auto touches = [&](const Access& other) { return other.value == access.value; };
    if (std::ranges::count_if(plan.accesses, touches) > 1) return false;
    const auto at = static_cast<int32_t>(index);
    for (const PlanNode& node : plan.nodes) {
      const bool moves = node.op == PlanOp::store_ ||
                         (node.op == PlanOp::load_ && plan.kind == KernelKind::vector);
      if (node.weights == at || (node.access == at && !moves)) return false;
    }
    return std::ranges::all_of(access.strides, [&](DimSlot stride) {
      return stride == kNoSlot || nonnegative_[static_cast<size_t>(stride)] != 0;
    });
  }

  // Gives arguments the numbers 0, 1, ... in the order of the plan's accesses.
  std::vector<Argument> take_arguments(KernelPlan& plan) const {
    std::vector<Argument> arguments;
    for (const Access& access : plan.accesses) {
      const auto index = static_cast<size_t>(&access - plan.accesses.data());
      const auto value = static_cast<uint32_t>(access.value);
      arguments.push_back({value, may_begin_at(plan, index) ? access.offset : kNoSlot});
    }
    std::vector<Argument> distinct;
    for (size_t i = 0; i < arguments.size(); i++) {
      const auto known = std::ranges::find(distinct, arguments[i]);
      plan.accesses[i].value = static_cast<int32_t>(known - distinct.begin());
      if (arguments[i].offset != kNoSlot) plan.accesses[i].offset = kNoSlot;
      if (known == distinct.end()) distinct.push_back(arguments[i]);
    }
    return distinct;
  }

 private:
  bool is_number(DimSlot slot) const {
    return model_.dims.instructions[static_cast<size_t>(slot)].op == DimOp::constant;
  }

  const Model& model_;
  const std::vector<char> nonnegative_;  // by slot
};

// Equal by bits: to C++, 0.0 and -0.0 are equal.
bool equal_plans(const KernelPlan& a, const KernelPlan& b) {
  return a == b && std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(),
                              [](const PlanNode& x, const PlanNode& y) {
                                return std::signbit(x.scalar) == std::signbit(y.scalar);
                              });
}

class Builder {
 public:
  explicit Builder(const Model& model) : model_(model), beginnings_(model) {}

  KernelTable build() && {
    for (const ModelKernel& kernel : model_.kernels) {
      KernelPlan plan = kernel.plan;
      plan.name.clear();
      BoundKernel bound{0, beginnings_.take_arguments(plan)};
      bound.kernel = find(plan, kernel.apart, bound.arguments);
      if (bound.kernel == table_.kernels.size()) {
        add(std::move(plan), bound.arguments);
        table_.kernels.back().apart = kernel.apart;
      }
      table_.bound.push_back(std::move(bound));
    }
    return std::move(table_);
  }

 private:
  template <typename T>
  static void keep_once(std::vector<T>& slots) {
    std::ranges::sort(slots);
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  }

  static void put_in_order(std::vector<DimSlot>& slots, std::vector<StrideSlot>& strides) {
    keep_once(slots);
    keep_once(strides);
    std::erase_if(strides, [&](const StrideSlot& slot) {
      return std::ranges::binary_search(slots, slot.stride);
    });
  }

  void find_open_axes(const KernelPlan& plan, DistinctKernel& kernel) const {
    const auto grows = [&](DimSlot slot) {
      return !model_.growing.empty() && model_.growing[static_cast<size_t>(slot)] != 0;
    };
    kernel.fixed = slots_beside_extents(plan);
    for (const DimSlot extent : plan.extents) {
      kernel.open.push_back(grows(extent));
      if (!grows(extent)) kernel.fixed.push_back(extent);
    }
  }

  uint32_t find(const KernelPlan& plan, Apart apart, const std::vector<Argument>& arguments) const {
    uint32_t kernel = 0;
    while (kernel < table_.kernels.size() && !(table_.kernels[kernel].apart == apart &&
                                               equal_plans(table_.kernels[kernel].plan, plan) &&
                                               equal_arguments(examples_[kernel], arguments))) {
      kernel++;
    }
    return kernel;
  }

  void add(KernelPlan plan, const std::vector<Argument>& arguments) {
    DistinctKernel& kernel = table_.kernels.emplace_back();
    find_open_axes(plan, kernel);
    kernel.slots = slots_beside_strides(plan);
    for (const Argument& argument : arguments) {
      if (argument.offset != kNoSlot) continue;  // what is left of it counts
      const std::vector<DimSlot>& held = model_.values[argument.value].held();
      kernel.slots.insert(kernel.slots.end(), held.begin(), held.end());
    }
    kernel.strides = kernel.fixed_strides = strides_of(plan);
    put_in_order(kernel.slots, kernel.strides);
    put_in_order(kernel.fixed, kernel.fixed_strides);
    kernel.plan = std::move(plan);
    examples_.push_back(arguments);
  }

  bool equal_arguments(const std::vector<Argument>& a, const std::vector<Argument>& b) const {
    return std::ranges::equal(a, b, [this](const Argument& x, const Argument& y) {
      return x.offset == y.offset && equal_buffers(model_.values[x.value], model_.values[y.value]);
    });
  }

  static bool equal_buffers(const ModelValue& a, const ModelValue& b) {
    if (a.dtype != b.dtype || a.contents.absent() != b.contents.absent()) return false;
    return a.contents.absent() ? a.held() == b.held()
                               : bytes_of(a.contents) == bytes_of(b.contents);
  }

  const Model& model_;
  const Beginnings beginnings_;
  KernelTable table_;
  std::vector<std::vector<Argument>> examples_;  // arguments of the first of its kind, by kernel
};

}  // namespace

KernelTable make_kernel_table(const Model& model) { return Builder(model).build(); }

}  // namespace dvm
