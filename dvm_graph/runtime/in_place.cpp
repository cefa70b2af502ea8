#include "runtime/in_place.h"

#include <algorithm>

namespace dvm {
namespace {

const KernelPlan& plan_of(const Model& model, uint32_t call) {
  return model.kernels[model.calls[call].kernel].plan;
}

const Access* access_to(const KernelPlan& plan, int32_t access, uint32_t value) {
  if (access < 0) return nullptr;
  const Access& found = plan.accesses[static_cast<size_t>(access)];
  return found.value == static_cast<int32_t>(value) ? &found : nullptr;
}

bool plan_touches(const KernelPlan& plan, uint32_t value) {
  return std::any_of(plan.accesses.begin(), plan.accesses.end(), [&](const Access& access) {
    return access.value == static_cast<int32_t>(value);
  });
}

// The axes of the kernel's results: all but those that products fold.
uint32_t result_axes(const KernelPlan& plan) {
  uint32_t axes = (1u << plan.extents.size()) - 1;
  if (plan.k_axis >= 0) axes &= ~(1u << plan.k_axis);
  if (plan.inner_k_axis >= 0) axes &= ~(1u << plan.inner_k_axis);
  return axes;
}

// The only node that touches `to`, if it stores a result at every point of the kernel.
const PlanNode* only_store(const KernelPlan& plan, uint32_t to) {
  const PlanNode* store = nullptr;
  for (const PlanNode& node : plan.nodes) {
    const bool here = access_to(plan, node.access, to) != nullptr;
    if (access_to(plan, node.weights, to) != nullptr || (here && store != nullptr)) return nullptr;
    if (here) store = &node;
  }
  if (store == nullptr || store->op != PlanOp::store_) return nullptr;
  return store->axes == result_axes(plan) ? store : nullptr;
}

// Every node that rests on what is read from `from` is computed before or as the stored one, and is
// stored no later: the run-time compiler may read and compute anew, just before its reader, what it
// could keep (`repeat_cheap`, `LoadMover`), so that nothing behind the store may rest on `from`.
bool plan_may_overwrite(const KernelPlan& plan, uint32_t from, uint32_t to) {
  const PlanNode* const store = only_store(plan, to);
  if (store == nullptr) return false;
  const auto written = static_cast<size_t>(store->inputs[0]);
  const Access& place = plan.accesses[static_cast<size_t>(store->access)];
  enum Relation : char { kNone, kLoad, kResult };
  std::vector<Relation> relations(plan.nodes.size(), kNone);
  for (size_t i = 0; i < plan.nodes.size(); i++) {
    const PlanNode& node = plan.nodes[i];
    if (access_to(plan, node.weights, from) != nullptr) return false;
    if (const Access* const read = access_to(plan, node.access, from)) {
      if (node.op != PlanOp::load_ || node.axes != store->axes || read->strides != place.strides ||
          read->offset != place.offset) {
        return false;
      }
      relations[i] = kLoad;
    }
    for (const int32_t input : node.inputs) {
      const Relation relation = input < 0 ? kNone : relations[static_cast<size_t>(input)];
      if (relation == kNone) continue;
      const bool behind = i > written;
      if (behind && (relation == kLoad || node.op != PlanOp::store_ || &node > store)) return false;
      relations[i] = kResult;
    }
  }
  return true;
}

// Calls that run one after the other.
bool chain_may_overwrite(const Model& model, const std::vector<uint32_t>& calls, uint32_t from,
                         uint32_t to) {
  bool written = false;
  for (const uint32_t call : calls) {
    const bool reads = touches(model, call, from), writes = touches(model, call, to);
    if (reads && (written || (writes && !may_overwrite(model, call, from, to)))) return false;
    written |= writes;
  }
  return true;
}

}  // namespace

bool touches(const Model& model, uint32_t call, uint32_t value) {
  const std::vector<uint32_t>& fallback = model.calls[call].fallback;
  return plan_touches(plan_of(model, call), value) ||
         std::any_of(fallback.begin(), fallback.end(),
                     [&](uint32_t inner) { return touches(model, inner, value); });
}

bool may_overwrite(const Model& model, uint32_t call, uint32_t from, uint32_t to) {
  return plan_may_overwrite(plan_of(model, call), from, to) &&
         chain_may_overwrite(model, model.calls[call].fallback, from, to);
}

}  // namespace dvm
