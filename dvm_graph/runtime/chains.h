// Which calls of a body have nothing to do with each other, turn after turn.
//
// The two directions of an LSTM, say: a *chain* is the calls that write or read the same values,
// among which a state and what the turn leaves of it are one. What nobody writes, constants and
// rows of scanned tensors, ties nothing together.
#pragma once

#include <vector>

#include "runtime/model.h"

namespace dvm {

struct Chain {
  std::vector<char> calls;    // by call of the model, fallbacks included: it is one of the chain
  std::vector<char> outputs;  // by output of the model: the chain, or nobody, gives it
};

// Every call is of one chain, and so is every output. None: the body is one chain, or a turn needs
// something of the host.
std::vector<Chain> chains_of(const Model& body, const ControlCall& call);

}  // namespace dvm
