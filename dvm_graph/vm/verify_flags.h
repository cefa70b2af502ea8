// Whether flags order what a core's queues do beside one another (vm/sync.h): proved for any number
// of tiles before a program runs.
//
// Balance: every wait has its signal, and none is left over.
//   - all instructions of an event have one distance d and no predicate, as many of them set as
//   wait
//   - at d = 0 as many are set before each wait in the body as wait up to it
//   - at d > 0 the signal for a wait is of an earlier tile; sets of the last d tiles and waits of
//     the first d are left out (sync_runs), which are as many
// So every wait comes behind its signal in the order of issue, and no two queues wait for each
// other.
//
// Order: of two instructions of different queues that touch the same bytes of local memory, one of
// them writing, the queue of the later one has waited for the earlier one, by way of other queues
// or not (vm/order.h). That is looked up for the first three tiles of a share, and holds for all.
//
// Between the cores of a pair: the slots of their rings are all that they touch both. In either
// half one queue alone is at a ring, between the one wait and the one signal that the half has for
// a slot, both of that queue (vm/verify_pair.h holds each half to that, and verify_kernel all of
// them to the same groups, lines, slots and lanes). So slot number i is filled behind the wait for
// the signal that i - slots is empty, emptied behind the signal that it is full, and i + slots
// filled behind the signal that it is empty. A lane counts its own signals alone: at a ring of sums
// lanes divide slots, so that the lane of i is that of i - slots; at one of rows all lanes are at
// every slot, each at another part of it. Nobody waits for ever: in the order of lines, of each the
// rows, then its groups, of each the cube unit's and then its lane's, all wait for what comes
// before them. Predicates do not count: an instruction that does not run orders as much as one that
// does, for flags have none. Global memory is written where nothing else is read
// (`kernels/plan.h`).
#pragma once

#include <span>
#include <string>

#include "vm/isa.h"

namespace dvm {

class FlagVerifier {
 public:
  FlagVerifier();

  // Takes the instructions of a body in turn, each of known opcode and length.
  void take(Family family, const uint64_t* words);
  // The last one has an operand at [low, high) of local memory, in tiles of odd number `second`
  // bytes behind.
  void touch(Role role, int64_t low, int64_t high, int64_t second);

  // What is wrong with the body of a program of so many tiles; empty: nothing.
  std::string check(std::span<const uint64_t> body, int64_t tiles) const;

 private:
  struct State;
  static State& of_thread();

  State& state_;
};

}  // namespace dvm
