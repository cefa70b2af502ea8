// What each flag of a program is for: leaves out one after the other, and looks who notices.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "npu/device.h"
#include "vm/core.h"
#include "vm/target.h"

namespace dvm {

// Of the wait flags of programs. A pair that is not `unordered` is spare.
struct FlagCounts {
  int64_t waits = 0;
  int64_t unbalanced = 0;  // without the wait the verifier refuses the program
  int64_t unordered = 0;   // without the wait and its set, too: nothing else orders as much
  int64_t seen = 0;        // of those, without the wait some order of queues computes other bits
  int64_t mistaken = 0;    // of spare ones, without both: none, or the verifier is wrong

  void add(const FlagCounts& other) {
    waits += other.waits;
    unbalanced += other.unbalanced;
    unordered += other.unordered;
    seen += other.seen;
    mistaken += other.mistaken;
  }
};

// What was found so far, of all devices that work for a model: each program is looked at once. May
// be called from several threads.
class FlagLedger {
 public:
  // Whether nobody has asked for this program yet.
  bool opens(const Program& program);
  void add(const FlagCounts& counts);
  FlagCounts counts() const;

 private:
  mutable std::mutex mutex_;
  std::set<std::vector<uint64_t>> programs_;
  FlagCounts counts_;
};

// Runs a task, or the two of a pair, again and again, and leaves their buffers as they were.
// `cores` have the memory to run in, the cube core's first and then its lanes'; what they hold is
// lost.
FlagCounts audit_flags(std::span<const Task> tasks, const Target& target,
                       const InstructionTable& table, std::span<const Core> cores);

}  // namespace dvm
