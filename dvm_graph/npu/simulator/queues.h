// A core's queues as they may run beside one another: each in order, and one before another
// whenever the flags between them permit. What a missing flag would have ordered then runs the
// wrong way round for some schedule, and computes other numbers. So may the cores of a pair.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "vm/core.h"
#include "vm/program.h"
#include "vm/shares.h"

namespace dvm {

// How the queues of a part that is computed for its values run.
enum class QueueRun : uint8_t {
  in_order,     // one instruction after the other
  adversarial,  // beside one another, by the orders of adversarial_orders in turn
  audited,      // the same, and what the flags of each program are for is counted first
};
QueueRun queue_run_from_name(std::string_view name);  // throws std::invalid_argument

// All queues, the one that runs as early as it may first, the one that runs as late as it may last.
using QueueOrder = std::array<Queue, kQueues>;

// For every two queues, an order in which the one is first and the other last.
std::vector<QueueOrder> adversarial_orders();

// The number of the program, among those of a pair, that its cube core runs, which comes first of
// its cores, or one of its lanes.
inline size_t half_of(const ProgramHeader& cube, size_t place) {
  return place == 0 ? 0 : cube.program_of(static_cast<int64_t>(place) - 1);
}

// What a core has to do: of a pair, with the lane that it is of its cube core.
struct QueuedCore {
  const Program* program = nullptr;
  Core* core = nullptr;
  std::byte* const* buffers = nullptr;
  std::span<const GroupRange> groups;  // of its share
  int64_t number = 0;                  // of the cube core, whose ring it is
  int64_t lane = 0;
};

// Runs the shares of a core, or of a pair's cores, by an order of queues; of several cores the
// first of `cores` goes first. False: the queues wait for each other for ever.
bool run_queues(std::span<const QueuedCore> cores, const InstructionTable& table,
                const QueueOrder& order);

// The same, one instruction after the other; of a pair, each lane goes on with a block as soon as
// it is there. The first of `cores` is the cube core, its lanes follow.
void run_in_order(std::span<const QueuedCore> cores, const InstructionTable& table);

}  // namespace dvm
