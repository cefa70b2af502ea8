// Of a run that is a turn of a loop: where states lie that it appends to
// (runtime/growing_states.h).
#include <algorithm>
#include <utility>

#include "runtime/runner.h"
#include "runtime/value_sizes.h"

namespace dvm {

void Runner::bind_rows(const GrowingPlace& place) {
  if (place.state->rows == nullptr) return;
  dims_.bind(static_cast<int>(place.state->rows->symbol), place.apart);
}

// Decides which rows have room behind them in this turn. How far these lie apart is a dim.
void Runner::space_rows(const RunRequest& request) {
  bool moved = false;
  for (GrowingPlace& place : request.growing) {
    const SpacedRows* const rows = place.state->rows;
    if (rows == nullptr || place.refuses) continue;
    Tensor& before = tensors_[place.state->from];
    place.refuses = !place.state->may_have_rows(before.shape, dims_);
    if (place.refuses || !place.state->appended) continue;
    const int64_t apart = place.apart;
    place.hold_rows(before, dims_.values()[rows->values[1].row], output_pool_,
                    model_.values[place.state->from].name.c_str());
    bind_rows(place);
    moved |= place.apart != apart;
  }
  moved |= space_results(request);
  if (std::exchange(moved, false)) dims_.evaluate();
  for (GrowingPlace& place : request.growing) {
    const SpacedRows* const rows = place.state->rows;
    if (rows == nullptr || place.apart == 0) continue;
    const GrowingState& state = *place.state;
    Tensor& before = tensors_[state.from];
    const bool stays =
        !state.appended || state.grows(dims_, dims_.values()[rows->values[0].row], place.apart);
    if (place.refuses || !stays) {
      before = place.closed(before, output_pool_, model_.values[state.from].name.c_str());
      place = {&state, nullptr, 0, 0, true};
      bind_rows(place);
      moved = true;
    }
    buffer(state.from) = before.data;
  }
  if (moved) dims_.evaluate();
}

// Of what kernels make in this turn. True: rows lie further apart than before, or less far.
bool Runner::space_results(const RunRequest& request) {
  bool moved = false;
  // What takes longer to move than a kernel to compile may lie as it would.
  const int64_t most = device_->device->target().stream_bytes;
  for (size_t i = 0; i < model_.spaced.size(); i++) {
    const SpacedRows& rows = model_.spaced[i];
    if (rows.by != SpacedRows::By::length) continue;
    const auto refuses = [&](const GrowingPlace& place) {
      return place.state->made == &rows && place.refuses;
    };
    const bool refused = request.growing.empty() || std::ranges::any_of(request.growing, refuses);
    const int64_t apart = refused ? 0 : distance_of(rows, model_, dims_, most);
    moved |= std::exchange(distances_[i], apart) != apart;
    dims_.bind(static_cast<int>(rows.symbol), apart);
  }
  return moved;
}

// Whether an output is a state that has a place of its own, as what an input holds and something
// behind that, and lies there from now on.
bool Runner::place_growing(uint32_t value, int64_t bytes, const RunRequest& request) {
  const auto is_of = [&](const GrowingPlace& place) { return place.state->to == value; };
  const auto place = std::ranges::find_if(request.growing, is_of);
  if (place == request.growing.end()) return false;
  const GrowingState& state = *place->state;
  Tensor& after = tensors_[value];
  if (!state.appended) {
    grow_inside(*place);
    place->memory = output_pool_.take(bytes, model_.values[value].name.c_str());
    place->apart = distance_of_made(state);
  } else if (!place_behind(*place, after)) {
    return false;
  }
  after.owner = place->memory;
  after.data = static_cast<std::byte*>(after.owner.get());
  return true;
}

// Puts what begins as a state that is made anew, and ends with the turn, where that lies.
void Runner::grow_inside(const GrowingPlace& place) {
  const GrowingState& state = *place.state;
  if (!state.grown) return;
  const bool goes_on = place.apart > 0 && place.apart == distance_of_made(state) &&
                       state.grows(dims_, dims_.values()[state.rows->values[0].row], place.apart);
  launcher_.leave_out(state.copy, goes_on);
  if (goes_on) buffer(*state.grown) = tensors_[state.from].data;
}

int64_t Runner::distance_of_made(const GrowingState& state) const {
  return distances_[static_cast<size_t>(state.made - model_.spaced.data())];
}

bool Runner::place_behind(GrowingPlace& place, const Tensor& after) {
  const GrowingState& state = *place.state;
  const Tensor& before = tensors_[state.from];
  const int64_t bytes = bytes_of(after), held = bytes_of(before);
  const bool spaced = place.apart > 0;
  const bool goes_on =
      spaced ||
      (bytes >= held && state.grows(dims_, held / static_cast<int64_t>(size_of(before.dtype))));
  launcher_.leave_out(state.copy, goes_on);
  if (goes_on && !spaced)
    place.hold(before, bytes, output_pool_, model_.values[state.to].name.c_str());
  return goes_on;
}

}  // namespace dvm
