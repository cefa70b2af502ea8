// A core's queues as they may run beside one another: each in order, and one before another
// whenever the flags between them permit. What a missing flag would have ordered then runs the
// wrong way round for some schedule, and computes other numbers.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "vm/core.h"
#include "vm/program.h"

namespace dvm {

// All queues, the one that runs as early as it may first, the one that runs as late as it may last.
using QueueOrder = std::array<Queue, kQueues>;

// For every two queues, an order in which the one is first and the other last.
std::vector<QueueOrder> adversarial_orders();

// Runs tiles [begin, end) of a program as run_tiles (vm/interpret.h) does, by an order of queues.
// False: the queues wait for each other for ever.
bool run_queues(const Program& program, const InstructionTable& table, Core& core,
                std::byte* const* buffers, int64_t begin, int64_t end, const QueueOrder& order);

}  // namespace dvm
