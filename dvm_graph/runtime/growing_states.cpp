#include "runtime/growing_states.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <variant>

#include "runtime/errors.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

// Whether a kernel copies the one from its beginning to that of the other; where rows lie is for
// the run to see.
bool copies(const KernelPlan& plan, GrowingState& state) {
  if (plan.nodes.size() != 2 || plan.nodes[0].op != PlanOp::load_ ||
      plan.nodes[1].op != PlanOp::store_) {
    return false;
  }
  const Access& load = plan.accesses[static_cast<size_t>(plan.nodes[0].access)];
  const Access& store = plan.accesses[static_cast<size_t>(plan.nodes[1].access)];
  if (load.value != static_cast<int32_t>(state.from) || load.offset != kNoSlot ||
      store.value != static_cast<int32_t>(state.to) || store.offset != kNoSlot) {
    return false;
  }
  for (size_t axis = 0; axis < plan.extents.size(); axis++) {
    const auto along = [&](const Access& access) {
      return axis < access.strides.size() ? access.strides[axis] : kNoSlot;
    };
    const DimSlot from = along(load), to = along(store);
    if (from != to) state.strides.push_back({from, to, plan.extents[axis]});
  }
  return true;
}

// All calls that write the output: the copy, and others behind it. False: they do something else.
bool find_writers(const Model& body, GrowingState& state) {
  const std::vector<char> nonnegative = body.dims.nonnegative();
  const auto is_forward = [&](DimSlot stride) {
    return stride == kNoSlot || nonnegative[static_cast<size_t>(stride)] != 0;
  };
  int copies_found = 0;
  for (uint32_t call = 0; call < body.calls.size(); call++) {
    const KernelPlan& plan = body.kernels[body.calls[call].kernel].plan;
    if (body.calls[call].guard == kNoSlot && copies(plan, state)) {
      state.copy = call;
      copies_found++;
      continue;
    }
    for (const PlanNode& node : plan.nodes) {
      if (node.op != PlanOp::store_) continue;
      const Access& access = plan.accesses[static_cast<size_t>(node.access)];
      if (access.value != static_cast<int32_t>(state.to)) continue;
      if (access.offset == kNoSlot || !std::ranges::all_of(access.strides, is_forward))
        return false;
      state.behind.push_back(access.offset);
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

std::pair<std::shared_ptr<void>, int64_t> take_with_room(int64_t bytes, OutputPool& pool,
                                                         const char* name) {
  int64_t room = 0;
  if (!__builtin_add_overflow(bytes, bytes / 2, &room)) {
    try {
      return {pool.take(room, name), room};
    } catch (const OutOfMemoryError&) {  // this may be the last turn
    }
  }
  return {pool.take(bytes, name), bytes};
}

}  // namespace

bool GrowingState::grows(const Dims& dims, int64_t elements) const {
  const auto value = [&](DimSlot slot) { return slot == kNoSlot ? 0 : dims.values()[slot]; };
  return std::ranges::all_of(
             behind, [&](DimSlot slot) { return dims.ok(slot) && value(slot) >= elements; }) &&
         std::ranges::all_of(strides, [&](const Strides& of) {
           return value(of.extent) == 1 || value(of.from) == value(of.to);
         });
}

void GrowingPlace::hold(const Tensor& before, int64_t wanted, OutputPool& pool, const char* name) {
  const bool is_there = memory != nullptr && before.data == memory.get();
  if (is_there && wanted <= bytes) return;
  std::tie(memory, bytes) = take_with_room(wanted, pool, name);
  std::memcpy(memory.get(), before.data, static_cast<size_t>(bytes_of(before)));
}

std::vector<GrowingState> growing_states(const Model& body, size_t states, size_t first_input,
                                         size_t first_output) {
  std::vector<GrowingState> found;
  for (size_t i = 0; i < states; i++) {
    GrowingState state;
    state.from = body.inputs[first_input + i];
    state.to = body.outputs[first_output + i];
    const ModelValue &from = body.values[state.from], &to = body.values[state.to];
    if (from.opaque || to.opaque || from.dtype != to.dtype || from.shape == to.shape) continue;
    if (to.storage != Storage::output || std::ranges::count(body.outputs, state.to) != 1) continue;
    if (find_writers(body, state) && is_launched(body, state.copy)) found.push_back(state);
  }
  return found;
}

}  // namespace dvm
