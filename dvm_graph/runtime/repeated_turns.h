// Turns of a body that go on in one launch: behind each, states and their spare places change
// roles, and rows move on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/loop_state.h"
#include "runtime/memory.h"
#include "runtime/runner.h"
#include "runtime/turn_shares.h"

namespace dvm {

// Turns behind the first, as far as there is memory for rows, of all strands or of some of them.
class alignas(kLinePair) RepeatedTurns final : public BodyTurns {
 public:
  // The strands [first, first + count) of `all`.
  struct Range {
    int64_t first = 0, count = 1, all = 1;
  };

  RepeatedTurns(const ControlCall& call, const TurnShares& shares, LoopState& loop, int64_t end,
                const Range& range, Interruption* ends);
  RepeatedTurns(const RepeatedTurns&) = delete;
  RepeatedTurns& operator=(const RepeatedTurns&) = delete;

  bool next(std::span<std::byte*> inputs, std::span<std::byte*> outputs) noexcept override;

  // A core sees them through by itself, those of a chain if there are any: it fetches rows of the
  // next turn while it is at one.
  void fetch_rows_ahead(const Chain* chain) {
    fetches_ = true;
    chain_ = chain;
  }

  // Of the strands that took part by themselves, what a chain, if any, has left of their states.
  void hand_over_states(const Chain* chain) const;

  // Takes the loop to where these turns, and those of all other strands, have ended.
  void finish() const;

 private:
  int64_t skipped(int64_t bytes) const { return bytes / range_.all * range_.first; }
  size_t share_of(int64_t bytes) const {
    return static_cast<size_t>(bytes / range_.all * range_.count);
  }
  bool turns_taken_are_odd() const { return (turn_ - first_) % 2 != 0; }
  void keep_own_states();
  void fetch_rows(int64_t turn) const noexcept;
  void end_turn();

  const ControlCall& call_;
  const TurnShares& shares_;
  LoopState& loop_;
  const int64_t first_ = loop_.turn, end_;
  const Range range_;
  Interruption* const interruption_;
  int64_t turn_ = first_;
  bool goes_on_ = true;  // so says the body
  std::vector<int64_t> operand_bytes_, skipped_;
  OwnLines<std::byte*> inputs_, spare_;
  OwnLines<std::byte> own_states_;  // two places of each; empty: they are the loop's
  bool begun_ = false;
  bool fetches_ = false;  // what a turn behind the one at hand will read and store
  const Chain* chain_ = nullptr;
};

}  // namespace dvm
