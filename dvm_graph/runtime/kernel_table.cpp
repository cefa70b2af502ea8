#include "runtime/kernel_table.h"

#include <algorithm>
#include <cmath>

#include "runtime/plan_dims.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

// Gives arguments the numbers 0, 1, ... in the order of the plan's accesses.
std::vector<uint32_t> take_arguments(KernelPlan& plan) {
  std::vector<uint32_t> arguments;
  for (Access& access : plan.accesses) {
    const auto value = static_cast<uint32_t>(access.value);
    const auto known = std::find(arguments.begin(), arguments.end(), value);
    access.value = static_cast<int32_t>(known - arguments.begin());
    if (known == arguments.end()) arguments.push_back(value);
  }
  return arguments;
}

// Equal by bits: to C++, 0.0 and -0.0 are equal.
bool equal_plans(const KernelPlan& a, const KernelPlan& b) {
  return a == b && std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(),
                              [](const PlanNode& x, const PlanNode& y) {
                                return std::signbit(x.scalar) == std::signbit(y.scalar);
                              });
}

class Builder {
 public:
  explicit Builder(const Model& model) : model_(model) {}

  KernelTable build() && {
    for (const ModelKernel& kernel : model_.kernels) {
      KernelPlan plan = kernel.plan;
      plan.name.clear();
      BoundKernel bound{0, take_arguments(plan)};
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
  uint32_t find(const KernelPlan& plan, Apart apart, const std::vector<uint32_t>& arguments) const {
    uint32_t kernel = 0;
    while (kernel < table_.kernels.size() && !(table_.kernels[kernel].apart == apart &&
                                               equal_plans(table_.kernels[kernel].plan, plan) &&
                                               equal_arguments(examples_[kernel], arguments))) {
      kernel++;
    }
    return kernel;
  }

  void add(KernelPlan plan, const std::vector<uint32_t>& arguments) {
    DistinctKernel& kernel = table_.kernels.emplace_back();
    kernel.slots = slots_of(plan);
    for (const uint32_t argument : arguments) {
      const std::vector<DimSlot>& shape = model_.values[argument].shape;
      kernel.slots.insert(kernel.slots.end(), shape.begin(), shape.end());
    }
    std::sort(kernel.slots.begin(), kernel.slots.end());
    kernel.slots.erase(std::unique(kernel.slots.begin(), kernel.slots.end()), kernel.slots.end());
    kernel.plan = std::move(plan);
    examples_.push_back(arguments);
  }

  bool equal_arguments(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [this](uint32_t x, uint32_t y) {
      return equal_buffers(model_.values[x], model_.values[y]);
    });
  }

  static bool equal_buffers(const ModelValue& a, const ModelValue& b) {
    if (a.dtype != b.dtype || a.contents.absent() != b.contents.absent()) return false;
    return a.contents.absent() ? a.shape == b.shape : bytes_of(a.contents) == bytes_of(b.contents);
  }

  const Model& model_;
  KernelTable table_;
  std::vector<std::vector<uint32_t>> examples_;  // arguments of the first of its kind, by kernel
};

}  // namespace

KernelTable make_kernel_table(const Model& model) { return Builder(model).build(); }

}  // namespace dvm
