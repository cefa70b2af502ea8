#include "runtime/growing_states.h"

#include <algorithm>
#include <optional>
#include <variant>

namespace dvm {
namespace {

bool copies(const KernelPlan& plan, uint32_t from, uint32_t to) {
  if (plan.nodes.size() != 2 || plan.nodes[0].op != PlanOp::load_ ||
      plan.nodes[1].op != PlanOp::store_) {
    return false;
  }
  const Access& load = plan.accesses[static_cast<size_t>(plan.nodes[0].access)];
  const Access& store = plan.accesses[static_cast<size_t>(plan.nodes[1].access)];
  return load.value == static_cast<int32_t>(from) && store.value == static_cast<int32_t>(to) &&
         load.offset == kNoSlot && store.offset == kNoSlot && load.strides == store.strides;
}

// Where a kernel stores into a value, whose rows go on from there; nothing: that is not known.
std::optional<DimSlot> stored_at(const DimTable& dims, const Access& access) {
  const bool forward = std::ranges::all_of(
      access.strides, [&](DimSlot stride) { return dims.is_nonnegative(stride); });
  if (access.offset == kNoSlot || !forward) return std::nullopt;
  return access.offset;
}

// All calls that write the output: the copy, and others behind it. False: they do something else.
bool find_writers(const Model& body, GrowingState& state) {
  int copies_found = 0;
  for (uint32_t call = 0; call < body.calls.size(); call++) {
    const KernelPlan& plan = body.kernels[body.calls[call].kernel].plan;
    if (copies(plan, state.from, state.to) && body.calls[call].guard == kNoSlot) {
      state.copy = call;
      copies_found++;
      continue;
    }
    for (const PlanNode& node : plan.nodes) {
      if (node.op != PlanOp::store_) continue;
      const Access& access = plan.accesses[static_cast<size_t>(node.access)];
      if (access.value != static_cast<int32_t>(state.to)) continue;
      const std::optional<DimSlot> at = stored_at(body.dims, access);
      if (!at) return false;
      state.behind.push_back(*at);
    }
  }
  return copies_found == 1 && std::ranges::none_of(body.steps, [&](const Step& step) {
           const auto* const write = std::get_if<DimsWrite>(&step);
           return write != nullptr && write->value == state.to;
         });
}

// The copy is no part of another call's fallback.
bool is_launched(const Model& body, uint32_t call) {
  return std::ranges::any_of(body.steps, [&](const Step& step) {
    const auto* const stage = std::get_if<LaunchStage>(&step);
    return stage != nullptr && std::ranges::find(stage->calls, call) != stage->calls.end();
  });
}

}  // namespace

std::vector<GrowingState> growing_states(const Model& body, size_t states, size_t first_input,
                                         size_t first_output) {
  std::vector<GrowingState> found;
  for (size_t i = 0; i < states; i++) {
    GrowingState state{body.inputs[first_input + i], body.outputs[first_output + i], 0, {}};
    const ModelValue &from = body.values[state.from], &to = body.values[state.to];
    if (from.opaque || to.opaque || from.dtype != to.dtype || from.shape == to.shape) continue;
    if (to.storage != Storage::output || std::ranges::count(body.outputs, state.to) != 1) continue;
    if (find_writers(body, state) && is_launched(body, state.copy)) found.push_back(state);
  }
  return found;
}

}  // namespace dvm
