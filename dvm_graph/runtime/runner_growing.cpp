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

// Decides which growing states have room behind their rows in this turn. How far these lie apart is
// a dim.
void Runner::space_rows(const RunRequest& request) {
  bool moved = false;
  for (GrowingPlace& place : request.growing) {
    const SpacedRows* const rows = place.state->rows;
    if (rows == nullptr || place.refuses) continue;
    place.refuses = !place.state->may_have_rows(tensors_[rows->from].shape, dims_);
    if (place.refuses) continue;
    const int64_t before = place.apart;
    place.hold_rows(tensors_[rows->from], dims_.values()[rows->to_row], output_pool_,
                    model_.values[rows->from].name.c_str());
    bind_rows(place);
    moved |= place.apart != before;
  }
  if (std::exchange(moved, false)) dims_.evaluate();
  for (GrowingPlace& place : request.growing) {
    const SpacedRows* const rows = place.state->rows;
    if (rows == nullptr || place.apart == 0) continue;
    Tensor& before = tensors_[rows->from];
    if (place.refuses || !place.state->grows(dims_, dims_.values()[rows->from_row], place.apart)) {
      before = place.closed(before, output_pool_, model_.values[rows->from].name.c_str());
      place = {place.state, nullptr, 0, 0, true};
      bind_rows(place);
      moved = true;
    }
    buffer(rows->from) = before.data;
  }
  if (moved) dims_.evaluate();
}

// Whether an output is what an input holds and something behind that, and lies there from now on.
bool Runner::place_behind(uint32_t value, const RunRequest& request) {
  const auto is_of = [&](const GrowingPlace& place) { return place.state->to == value; };
  const auto place = std::ranges::find_if(request.growing, is_of);
  if (place == request.growing.end()) return false;
  const GrowingState& state = *place->state;
  const Tensor& before = tensors_[state.from];
  Tensor& after = tensors_[value];
  const int64_t bytes = bytes_of(after), held = bytes_of(before);
  const bool spaced = place->apart > 0;
  const bool goes_on =
      spaced ||
      (bytes >= held && state.grows(dims_, held / static_cast<int64_t>(size_of(before.dtype))));
  launcher_.leave_out(state.copy, goes_on);
  if (!goes_on) return false;
  if (!spaced) place->hold(before, bytes, output_pool_, model_.values[value].name.c_str());
  after.owner = place->memory;
  after.data = static_cast<std::byte*>(after.owner.get());
  return true;
}

}  // namespace dvm
