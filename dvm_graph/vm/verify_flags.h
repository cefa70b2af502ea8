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
// Between the cores of a pair: their slots of a ring are all that both touch. In the cube's half
// fixp alone uses them, in the vector's mte2 alone, between the one wait and the one signal that
// the half has in a group, both of that queue (vm/verify.cpp holds either half to that, and
// verify_kernel both to the same groups, slots and lanes). So group g is filled behind the wait for
// g - slots, emptied behind the signal that it is full, and group g + slots filled behind the
// signal that it is empty: lanes divide slots, so that both signals are of the lane that waits. All
// instructions in the order g of the cube, g of its lane, g + 1 of the cube wait for what comes
// before them: no half waits for ever.
// Predicates do not count: an instruction that does not run orders as much as one that does, for
// flags have none. Global memory is written where nothing else is read (`kernels/plan.h`).
#pragma once

#include <span>
#include <string>

#include "vm/isa.h"

namespace dvm {

class FlagVerifier {
 public:
  FlagVerifier();

  // Takes the instructions of a body in turn, each of known opcode and length.
  void take(const uint64_t* words);
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
