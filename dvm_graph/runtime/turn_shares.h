// Which turns of a body cores can take by themselves: those of its strands, elements of states and
// rows that have nothing to do with others, and of its chains, calls that have
// (runtime/chains.h). And what is predicted to be over first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/chains.h"
#include "runtime/launcher.h"
#include "runtime/loop_state.h"
#include "runtime/model.h"

namespace dvm {

class Runner;

class TurnShares {
 public:
  // Of a body whose turns may repeat.
  explicit TurnShares(const ControlCall& call);

  // What cores take through turns by themselves: each chain or all of them at once, in so many
  // shares of the strands. No shares: all cores share every turn.
  struct Division {
    bool by_chain = false;
    int64_t shares = 0;
  };

  std::span<const Chain> chains() const { return chains_; }
  // Whether a chain, or any of them, reads an input of the body.
  bool reads(const Chain* chain, size_t input) const {
    return reads_[chain == nullptr ? 0 : static_cast<size_t>(chain - chains_.data()) + 1][input] !=
           0;
  }
  // That of the strands in an input of the body; -1: it has none.
  int axis_of(size_t input) const { return strand_axes_[input]; }
  // That lie one after the other in all that has some; 1 where they are not known.
  int64_t strands_of(const LoopState& loop) const;
  // What is predicted to be over first.
  Division divide(const LoopState& loop, int64_t strands, Runner& body,
                  const RunRequest& request) const;

 private:
  // What all strands read.
  struct Shared {
    int64_t constant_bytes = 0;
    std::vector<size_t> operands;  // of the body
  };

  std::vector<char> values_read_by(const Chain* chain) const;
  Shared shared_by(const Chain* chain) const;
  double reading_seconds(const LoopState& loop, size_t part, const Target& target) const;

  const Model* body_;
  std::vector<Chain> chains_;  // of the body, if it has several
  // Where the body says what strands there are: their axes in its inputs, -1 in what has none, and
  // in rows that are collected.
  bool stranded_ = false;
  std::vector<int> strand_axes_, row_axes_;
  std::vector<std::vector<char>> reads_;  // by input: the body, and each chain
  std::vector<Shared> shared_;            // of the body, and of each chain
};

}  // namespace dvm
