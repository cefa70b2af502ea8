// Runs control-flow operators: the branch that an If takes, the turns of a Loop or Scan.
//
//   If      the condition and what the branches read; both branches read the same
//   turns   [most turns] [whether to begin] states, scanned tensors, what the body reads of around
//           -> last states, collected tensors
//   body    [turn, whether it goes on] states, a row of each scanned tensor, what it reads of
//   around
//           -> [whether to go on] states, a row for each collected tensor
//   prelude what the body reads of around -> what it reads besides, once, before the first turn
//
// A body is a program of its own (executor.h), compiled once, whose runners live here: a turn at
// the dims of the turn before finds its kernels compiled and its memory laid out, and other dims
// are bound anew. States stay where a turn left them; where they keep their shape, they
// take turns in two places, and where turns only append to them, they are not moved
// (runtime/growing_states.h). Rows of scanned tensors are read where they lie, rows of collected
// ones are stored where they belong, into memory that grows by half if nobody knows how many will
// come. Nothing but conditions is read by the host. The first turn may have a body of its own,
// which says the same of the states that there are then.
//
// A body of launches only, whose states keep their shapes, is launched once for all turns behind
// the first (Runner::repeat), or for as many as there is memory for what is collected. Where it has
// strands or chains (runtime/turn_shares.h), each core takes a share of them through all these
// turns, and waits for nobody (Runner::repeat_apart).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/chains.h"
#include "runtime/device_pool.h"
#include "runtime/growing_states.h"
#include "runtime/launcher.h"
#include "runtime/model.h"
#include "runtime/output_pool.h"
#include "runtime/turn_shares.h"

namespace dvm {

class Runner;

class ControlRunner {
 public:
  // Of a step of the model `around`; `pool` has memory for what is collected.
  ControlRunner(const Model& around, const ControlCall& call, OutputPool& pool,
                std::shared_ptr<SharedDevice> device);
  ~ControlRunner();
  ControlRunner(const ControlRunner&) = delete;
  ControlRunner& operator=(const ControlRunner&) = delete;

  // Inputs and results in the order of the call; results own their memory. Throws what bodies do,
  // and CancelledError between turns.
  std::vector<Tensor> run(std::span<const Tensor> inputs, const RunContext& run);

  void forget();
  int64_t held_bytes() const { return held_bytes_; }

 private:
  std::vector<Tensor> take_branch(std::span<const Tensor> inputs, const RunContext& run);
  std::vector<Tensor> take_turns(std::span<const Tensor> inputs, const RunContext& run);
  void begin(LoopState& loop, std::span<const Tensor> inputs);
  void run_prelude(LoopState& loop, const RunContext& run);
  std::vector<Tensor> results_of(LoopState& loop, const RunContext& run) const;
  void take_turn(LoopState& loop, const RunContext& run);
  void repeat_turns(LoopState& loop, const RunContext& run);
  std::vector<Tensor> run_turn(size_t body, std::span<const Tensor> operands,
                               std::span<const Tensor> given, const RunContext& run,
                               const LoopTurn& turn = {});
  int64_t most_turns(std::span<const Tensor> inputs) const;
  Runner& runner_of(size_t body, std::span<const Tensor> inputs, const RunContext& run,
                    int64_t turn);
  std::vector<Tensor> run_body(size_t body, std::span<const Tensor> inputs,
                               std::span<const Tensor> given, const RunContext& run,
                               const LoopTurn& turn = {});
  RunRequest request_for(size_t body, const RunContext& run);
  void add_statistics(size_t body, const Runner& runner, const RunContext& run,
                      int64_t start_ns) const;
  void repeat_apart(LoopState& loop, int64_t end, int64_t strands,
                    const TurnShares::Division& division, const RunContext& run);
  std::vector<int64_t> empty_row(size_t row, const RunContext& run) const;

  const Model& around_;
  const ControlCall& call_;
  OutputPool& pool_;
  const std::shared_ptr<SharedDevice> device_;
  std::vector<std::unique_ptr<Runner>> bodies_;
  std::vector<char> steady_;  // by state: every turn gives it the shape that it had
  std::vector<GrowingState> growing_;
  bool may_be_alone_ = false;         // turns may be over before cores have met
  bool alone_at_hand_ = false;        // those at hand are
  std::optional<TurnShares> shares_;  // turns behind the first may go in one launch
  // Of the body or a chain of it for one core, by chain and share of the strands.
  std::map<std::pair<const Chain*, int64_t>, std::unique_ptr<Runner>> alone_;
  std::vector<std::pair<uint32_t, int64_t>> symbols_;  // of the body at hand
  int64_t held_bytes_ = 0;                             // after the last run
};

}  // namespace dvm
