#include "runtime/growing_states.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "runtime/errors.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

using By = SpacedRows::By;

// Whether a kernel copies the one from its beginning to that of the other; where rows lie is for
// the run to see.
bool copies(const KernelPlan& plan, uint32_t grown, GrowingState& state) {
  if (plan.nodes.size() != 2 || plan.nodes[0].op != PlanOp::load_ ||
      plan.nodes[1].op != PlanOp::store_) {
    return false;
  }
  const Access& load = plan.accesses[static_cast<size_t>(plan.nodes[0].access)];
  const Access& store = plan.accesses[static_cast<size_t>(plan.nodes[1].access)];
  if (load.value != static_cast<int32_t>(state.from) || load.offset != kNoSlot ||
      store.value != static_cast<int32_t>(grown) || store.offset != kNoSlot) {
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

// All calls that write a value: the copy, and others behind it. False: they do something else.
bool find_writers(const Model& body, uint32_t grown, GrowingState& state) {
  const std::vector<char> nonnegative = body.dims.nonnegative();
  const auto is_forward = [&](DimSlot stride) {
    return stride == kNoSlot || nonnegative[static_cast<size_t>(stride)] != 0;
  };
  int copies_found = 0;
  for (uint32_t call = 0; call < body.calls.size(); call++) {
    const KernelPlan& plan = body.kernels[body.calls[call].kernel].plan;
    if (body.calls[call].guard == kNoSlot && copies(plan, grown, state)) {
      state.copy = call;
      copies_found++;
      continue;
    }
    for (const PlanNode& node : plan.nodes) {
      if (node.op != PlanOp::store_) continue;
      const Access& access = plan.accesses[static_cast<size_t>(node.access)];
      if (access.value != static_cast<int32_t>(grown)) continue;
      if (access.offset == kNoSlot || !std::ranges::all_of(access.strides, is_forward))
        return false;
      state.behind.push_back(access.offset);
    }
  }
  return copies_found == 1 && std::ranges::none_of(body.steps, [&](const Step& step) {
           const auto* const write = std::get_if<DimsWrite>(&step);
           return write != nullptr && write->value == grown;
         });
}

// The copy is no part of another call's fallback.
bool is_launched(const Model& body, uint32_t call) {
  return std::ranges::any_of(body.steps, [&](const Step& step) {
    const auto* const stage = std::get_if<LaunchStage>(&step);
    return stage != nullptr && std::ranges::find(stage->calls, call) != stage->calls.end();
  });
}

// Sees what is a state and something behind it. False: the value is not, and nothing has changed.
bool find_grown(const Model& body, uint32_t value, GrowingState& state) {
  GrowingState found = state;
  if (!find_writers(body, value, found) || !is_launched(body, found.copy)) return false;
  state = std::move(found);
  state.grown = value;
  return true;
}

struct Room {
  std::shared_ptr<void> memory;
  int64_t each = 0;
};

// For so many times `each`, which can be counted, and `room` more behind each where that is to be
// had.
Room take_with_room(int64_t times, int64_t each, int64_t room, OutputPool& pool, const char* name) {
  int64_t with_room = 0, bytes = 0;
  if (!__builtin_add_overflow(each, room, &with_room) &&
      !__builtin_mul_overflow(times, with_room, &bytes)) {
    try {
      return {pool.take(bytes, name), with_room};
    } catch (const OutOfMemoryError&) {  // this may be the last turn
    }
  }
  return {pool.take(times * each, name), each};
}

}  // namespace

bool GrowingState::may_have_rows(std::span<const int64_t> shape, const Dims& dims) const {
  const auto outer = shape.first(rows->values[0].axis);
  return std::ranges::any_of(outer, [](int64_t extent) { return extent > 1; }) &&
         std::ranges::all_of(outer, [](int64_t extent) { return extent > 0; }) &&
         may_space(*rows, dims);
}

bool GrowingState::grows(const Dims& dims, int64_t elements, int64_t apart) const {
  const auto value = [&](DimSlot slot) { return slot == kNoSlot ? 0 : dims.values()[slot]; };
  const auto in_row = [&](DimSlot slot) { return apart > 0 ? value(slot) % apart : value(slot); };
  return std::ranges::all_of(
             behind, [&](DimSlot slot) { return dims.ok(slot) && in_row(slot) >= elements; }) &&
         (elements == 0 || std::ranges::all_of(strides, [&](const Strides& of) {
            return value(of.extent) == 1 || value(of.from) == value(of.to);
          }));
}

void GrowingPlace::hold(const Tensor& before, int64_t wanted, OutputPool& pool, const char* name) {
  if (has(before) && wanted <= bytes) return;
  Room room = take_with_room(1, wanted, wanted / 2, pool, name);
  std::memcpy(room.memory.get(), before.data, static_cast<size_t>(bytes_of(before)));
  memory = std::move(room.memory);
  bytes = room.each;
}

void GrowingPlace::hold_rows(Tensor& before, int64_t elements, OutputPool& pool, const char* name) {
  const bool is_there = apart > 0 && has(before);
  if (is_there && elements <= apart) return;
  RowLayout rows = layout_of(before);
  if (!is_there) rows.pitch = rows.bytes;
  const auto size = static_cast<int64_t>(size_of(before.dtype));
  int64_t each = 0, all = 0;  // nobody has measured yet what the turn makes
  if (__builtin_mul_overflow(elements, size, &each) ||
      __builtin_mul_overflow(rows.count, each, &all)) {
    throw OutOfMemoryError(std::string(name) + " needs more than 2^63 bytes");
  }
  // Half a row may be less than an element.
  const int64_t more = aligned_row(each + std::max(each / 2, size));  // there are two rows or more
  const int64_t wanted = std::max(more, first_row(rows.count));
  Room room = take_with_room(rows.count, each, wanted - each, pool, name);
  copy_rows(rows, before.data, static_cast<std::byte*>(room.memory.get()), room.each);
  memory = std::move(room.memory);
  apart = room.each / size;
  bytes = room.each * rows.count;
  before.owner = memory;
  before.data = static_cast<std::byte*>(memory.get());
}

Tensor GrowingPlace::closed(const Tensor& state, OutputPool& pool, const char* name) const {
  const RowLayout rows = layout_of(state);
  Tensor tensor{state.dtype, state.shape, nullptr, pool.take(bytes_of(state), name)};
  tensor.data = static_cast<std::byte*>(tensor.owner.get());
  copy_rows(rows, state.data, tensor.data, rows.bytes);
  return tensor;
}

RowLayout GrowingPlace::layout_of(const Tensor& tensor) const {
  RowLayout rows{1, static_cast<int64_t>(size_of(tensor.dtype)), 0};
  rows.pitch = apart * rows.bytes;
  for (size_t i = 0; i < tensor.shape.size(); i++) {
    (i < state->rows->values[0].axis ? rows.count : rows.bytes) *= tensor.shape[i];
  }
  return rows;
}

std::vector<GrowingState> growing_states(const Model& body, size_t states, size_t first_input,
                                         size_t first_output) {
  const auto rows_of = [&](uint32_t value, By by) -> const SpacedRows* {
    const auto is_of = [&](const SpacedRows& rows) {
      return rows.by == by && std::ranges::any_of(rows.values, [&](const SpacedRows::Value& known) {
               return known.value == value;
             });
    };
    const auto rows = std::ranges::find_if(body.spaced, is_of);
    return rows == body.spaced.end() ? nullptr : &*rows;
  };
  std::vector<GrowingState> found;
  for (size_t i = 0; i < states; i++) {
    GrowingState state;
    state.index = i;
    state.from = body.inputs[first_input + i];
    state.to = body.outputs[first_output + i];
    const ModelValue &from = body.values[state.from], &to = body.values[state.to];
    if (from.opaque || to.opaque || from.dtype != to.dtype || from.shape == to.shape) continue;
    if (to.storage != Storage::output || std::ranges::count(body.outputs, state.to) != 1) continue;
    state.appended = find_grown(body, state.to, state);
    state.rows = rows_of(state.from, state.appended ? By::room : By::place);
    if (!state.appended) {
      state.made = rows_of(state.to, By::length);
      if (state.rows == nullptr || state.made == nullptr) continue;
      for (const SpacedRows::Value& known : state.made->values) {
        const bool is_inside = body.values[known.value].storage == Storage::arena;
        if (is_inside && find_grown(body, known.value, state)) break;
      }
    }
    found.push_back(state);
  }
  return found;
}

}  // namespace dvm
