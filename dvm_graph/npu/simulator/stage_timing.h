// How long the cores of a part take for a stage: an event-driven simulation of their queues.
//
// On each core the scalar unit decodes instructions in order and puts them into the queues of their
// units, which hold so many of them; queues run in order, beside one another, and wait for flags. A
// transfer waits for its start-up and then moves through the shared cache and, for what is not
// there, to or from memory, whose bandwidths it shares with all transfers in flight. Everything
// else takes a time of its own.
//
// A cube core and the lanes of its pairs (vm/program.h) are cores of their own, which signal each
// other.
//
// Cores whose shares ask for the same steps do the same at the same time: one of them is simulated,
// and counts for all. Where the state of all cores repeats, but for the time, after some tiles, and
// the tiles to come are the same again, they are not simulated but counted (*skipped*): what equal
// tiles take is found once. Deterministic; in cycles of the cores' clock.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "npu/simulator/work.h"

namespace dvm {

// Groups of a program's tiles; `program` counts the programs of the stage. Of a pair the first one
// stands for both: the lanes of the core have the other.
struct Share {
  uint32_t program = 0;
  std::vector<GroupRange> groups;

  bool operator==(const Share&) const = default;
};
using CoreShares = std::vector<Share>;

// Of all cores together, in cycles.
struct UnitTiming {
  double busy = 0;
  double for_decode = 0;                       // idle: nothing was decoded yet
  std::array<double, kUnitQueues> for_flag{};  // idle: waits for another unit
  double for_others = 0;  // of busy: transfers that share bandwidth take so much longer
  double instructions = 0;
};

struct TracedSpan {
  uint32_t core = 0;  // that stands for all of its kind
  uint8_t queue = 0;  // kUnitQueues: the scalar unit
  Family family{};    // count_: tiles that were skipped
  double start = 0, end = 0;
  int64_t tile = 0;  // how many, where they were skipped
};

// A flag: from when one queue set it to when another one, of this core, went on.
struct TracedFlag {
  uint32_t core = 0;
  uint32_t from_core = 0;
  uint8_t from = 0, to = 0;
  double set = 0, taken = 0;
};

struct TracedCore {
  uint32_t core = 0;
  int64_t stands_for = 1;  // cores, itself counted
};

struct StageTiming {
  double cycles = 0;  // until the last core is done
  int64_t cores = 0;  // that have tiles; of a pair: cube cores
  int64_t lanes = 0;  // of them all together, that have tiles
  std::array<UnitTiming, kUnitQueues> units{};
  std::array<UnitTiming, kUnitQueues> lane_units{};
  double decoding = 0;           // of the scalar units
  double read = 0, written = 0;  // bytes through the shared cache
  double memory_read = 0, memory_written = 0;
  double flops = 0;         // of products
  double instructions = 0;  // of all cores
  int64_t simulated = 0;    // of them, one by one
  std::vector<TracedCore> traced_cores;
  std::vector<TracedSpan> spans;
  std::vector<TracedFlag> flags;
};

// `most_spans` of the trace; 0: none is kept.
StageTiming simulate_stage(std::vector<ProgramWork>& programs, const std::vector<CoreShares>& cores,
                           const NpuPart& part, size_t most_spans);

}  // namespace dvm
