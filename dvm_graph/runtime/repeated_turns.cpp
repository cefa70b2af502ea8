#include "runtime/repeated_turns.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/numbers.h"
#include "runtime/memory.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

// No core fetches more than this by itself behind what is read.
constexpr size_t kFetchedAhead = 4096;
// Of a row. A turn that reads more takes long enough for its products to fetch what they add, and
// would wait for what a core cannot have under way at once.
constexpr size_t kMostFetched = size_t{8} << 10, kLine = kLinePair / 2;

}  // namespace

RepeatedTurns::RepeatedTurns(const ControlCall& call, const TurnShares& shares, LoopState& loop,
                             int64_t end, const Range& range, Interruption* ends)
    : call_(call), shares_(shares), loop_(loop), end_(end), range_(range), interruption_(ends) {
  for (size_t i = 0; i < loop.operands.size(); i++) {
    const Tensor& operand = loop.operands[i];
    operand_bytes_.push_back(bytes_of(operand));
    const bool stranded = range.all > 1 && shares.axis_of(i) >= 0;
    inputs_.push_back(operand.data + (stranded ? skipped(operand_bytes_[i]) : 0));
    skipped_.push_back(inputs_[i] - operand.data);
  }
  for (size_t i = 0; i < loop.spare.size(); i++) spare_.push_back(loop.spare[i].data);
  if (range.all > 1) keep_own_states();
}

bool RepeatedTurns::next(std::span<std::byte*> inputs, std::span<std::byte*> outputs) noexcept {
  if (std::exchange(begun_, true)) end_turn();
  if (turn_ >= end_ || !goes_on_) return false;
  if (interruption_ != nullptr && interruption_->requested()) return false;
  const size_t said = call_.said(), states = spare_.size();
  const size_t first_row = call_.told() + states;
  std::ranges::copy(inputs_, inputs.begin());
  for (size_t i = 0; i < call_.scanned.size(); i++) {
    const size_t at = first_row + i;
    inputs[at] = loop_.row_of(i, turn_, call_.scanned[i] != 0, operand_bytes_[at]) + skipped_[at];
  }
  if (call_.counted) outputs[0] = reinterpret_cast<std::byte*>(&goes_on_);
  for (size_t i = 0; i < states; i++) outputs[said + i] = spare_[i];
  for (size_t i = 0; i < loop_.rows.size(); i++) {
    const CollectedRows& rows = loop_.rows[i];
    outputs[said + states + i] = rows.at(turn_) + skipped(rows.row_bytes);
  }
  if (fetches_ && turn_ + 1 < end_) fetch_rows(turn_ + 1);
  return true;
}

// From memory, or from the core that has computed them.
void RepeatedTurns::fetch_rows(int64_t turn) const noexcept {
  const auto fetch = [](const std::byte* row, size_t bytes, auto writes) {
    if (bytes > kMostFetched) return;
    for (size_t i = 0; i < bytes; i += kLine)
      __builtin_prefetch(row + i, decltype(writes)::value, 2);
  };
  const size_t states = spare_.size();
  for (size_t i = 0; i < call_.scanned.size(); i++) {
    const size_t at = call_.told() + states + i;
    if (!shares_.reads(chain_, at)) continue;
    const int64_t bytes = operand_bytes_[at];
    const std::byte* const row = loop_.row_of(i, turn, call_.scanned[i] != 0, bytes);
    fetch(row + skipped_[at], share_of(bytes), std::false_type{});
  }
  for (size_t i = 0; i < loop_.rows.size(); i++) {
    if (chain_ != nullptr && chain_->outputs[call_.said() + states + i] == 0) continue;
    const CollectedRows& rows = loop_.rows[i];
    fetch(rows.at(turn) + skipped(rows.row_bytes), share_of(rows.row_bytes), std::true_type{});
  }
}

void RepeatedTurns::hand_over_states(const Chain* chain) const {
  const size_t said = call_.said();
  for (size_t i = 0; i < spare_.size() && !own_states_.empty(); i++) {
    if (chain != nullptr && chain->outputs[said + i] == 0) continue;
    const size_t at = call_.told() + i;
    const Tensor& state = turns_taken_are_odd() ? loop_.spare[i] : loop_.operands[at];
    std::memcpy(state.data + skipped_[at], inputs_[at], share_of(operand_bytes_[at]));
  }
}

void RepeatedTurns::finish() const {
  for (size_t i = 0; i < spare_.size() && turns_taken_are_odd(); i++) {
    std::swap(loop_.operands[call_.told() + i].data, loop_.spare[i].data);
    std::swap(loop_.operands[call_.told() + i].owner, loop_.spare[i].owner);
  }
  loop_.turn = turn_;
  loop_.goes_on = goes_on_;
}

// Side by side, what one core reads and another writes would be a line apart, and fetched along
// with what is read before it.
void RepeatedTurns::keep_own_states() {
  size_t bytes = kFetchedAhead;
  const auto room = [&](size_t i) {
    return ceil_div(share_of(operand_bytes_[call_.told() + i]), kLinePair) * kLinePair;
  };
  for (size_t i = 0; i < spare_.size(); i++) bytes += 2 * room(i);
  require_memory(static_cast<int64_t>(bytes), ("states of " + call_.name).c_str());
  own_states_.resize(bytes);
  std::byte* place = own_states_.data();
  for (size_t i = 0; i < spare_.size(); i++) {
    const size_t at = call_.told() + i;
    std::memcpy(place, inputs_[at], share_of(operand_bytes_[at]));
    inputs_[at] = std::exchange(place, place + room(i));
    spare_[i] = std::exchange(place, place + room(i));
  }
}

void RepeatedTurns::end_turn() {
  turn_++;
  if (call_.counted) loop_.turn = turn_;  // the body reads it there
  for (size_t i = 0; i < spare_.size(); i++) std::swap(inputs_[call_.told() + i], spare_[i]);
}

}  // namespace dvm
