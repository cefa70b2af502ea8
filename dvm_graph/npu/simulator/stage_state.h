// The state of the cores of a part while a stage is simulated: queues, flags, transfers in flight,
// and what they add up to.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "npu/simulator/shared_rate.h"
#include "npu/simulator/stage_timing.h"

namespace dvm {

inline constexpr int kMostSignals = 4;  // of a flag that nobody has taken yet

// CoreTotals that a skipped period adds to: one for each core that is simulated.
struct CoreTotals {
  std::array<UnitTiming, kUnitQueues> units{};
  double decoding = 0, read = 0, written = 0, memory_read = 0, memory_written = 0;
  double flops = 0, instructions = 0;
};

template <class Change>
void change_totals(CoreTotals& a, const CoreTotals& b, Change change) {
  for (size_t q = 0; q < a.units.size(); ++q) {
    UnitTiming& x = a.units[q];
    const UnitTiming& y = b.units[q];
    change(x.busy, y.busy);
    change(x.for_decode, y.for_decode);
    for (size_t p = 0; p < x.for_flag.size(); ++p) change(x.for_flag[p], y.for_flag[p]);
    change(x.for_others, y.for_others);
    change(x.instructions, y.instructions);
  }
  change(a.decoding, b.decoding);
  change(a.read, b.read);
  change(a.written, b.written);
  change(a.memory_read, b.memory_read);
  change(a.memory_written, b.memory_written);
  change(a.flops, b.flops);
  change(a.instructions, b.instructions);
}

struct IssuedStep {
  const UnitStep* step = nullptr;
  double at = 0;
  int64_t tile = 0;
};

// First in, first out, of no more than were said.
class WaitingSteps {
 public:
  explicit WaitingSteps(size_t most) : entries_(most) {}
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == entries_.size(); }
  IssuedStep& operator[](size_t i) { return entries_[(first_ + i) % entries_.size()]; }
  const IssuedStep& operator[](size_t i) const { return entries_[(first_ + i) % entries_.size()]; }
  void push(const IssuedStep& entry) { (*this)[size_++] = entry; }
  void pop() {
    first_ = (first_ + 1) % entries_.size();
    --size_;
  }

 private:
  std::vector<IssuedStep> entries_;
  size_t first_ = 0, size_ = 0;
};

struct UnitQueue {
  explicit UnitQueue(size_t most) : waiting(most) {}

  WaitingSteps waiting;
  bool holds_decoder = false;   // the scalar unit waits for a place in it
  double ready = 0;             // when it is done with all before
  double request = 0;           // from when on the next transfer may ask for its bytes
  IssuedStep moving;            // the transfer that is begun; no step: none is
  double began = 0, alone = 0;  // of it: its start, and its time without others
  int flows = 0;                // of it, in flight

  bool idle() const { return moving.step == nullptr && waiting.empty(); }
};

// When a flag was set, for each time that nobody has taken yet.
struct FlagSignals {
  std::array<double, kMostSignals> at{};
  int count = 0;
};

// A core, with all that do the same. The lanes of a cube core follow it.
struct CoreState {
  uint32_t first = 0;
  int lane = -1;           // that it is, of the core `head`
  uint32_t head = 0;       // itself, if it is none
  uint32_t followers = 0;  // lanes behind it
  double weight = 1;
  // What it runs: classes of tiles, with the program of each stretch.
  std::vector<TileClass> tiles;
  std::vector<std::pair<int64_t, ProgramWork*>> programs;  // up to which tile
  size_t program = 0;
  int64_t tile = 0;  // being decoded
  size_t step = 0;
  double scalar = 0;
  std::vector<UnitQueue> queues;
  std::vector<FlagSignals> flags;      // within it, by the number of the flag
  std::vector<FlagSignals> for_lane;   // of a cube core: to each lane,
  std::vector<FlagSignals> from_lane;  // and from each
  CoreTotals totals;
  double end = 0;

  // The lanes that a flag between cores is for.
  std::pair<int, int> lanes_at(Handed handed, int64_t tile_number) const;
  bool same_work(const CoreState& other) const {
    return other.programs == programs && other.tiles == tiles;
  }
  bool decoded() const { return tile == static_cast<int64_t>(tiles.size()); }
};

// A transfer that waits for its start-up.
struct TransferStart {
  double at;
  uint64_t order;
  uint32_t transfer;

  bool operator<(const TransferStart& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

// Spans and flags, no more of them than were asked for.
class StageTrace {
 public:
  explicit StageTrace(size_t most) : most_(most) {}

  void add(const CoreState& core, int queue, Family family, double start, double end,
           int64_t tile) {
    if (spans_.size() >= most_) return;
    spans_.push_back({core.first, static_cast<uint8_t>(queue), family, start, end, tile});
  }
  void add_flag(const CoreState& core, const UnitStep& step, uint32_t from, double set,
                double taken) {
    if (flags_.size() >= most_ || spans_.size() >= most_) return;
    flags_.push_back({core.first, from, step.peer, step.queue, set, taken});
  }
  void move_to(StageTiming& timing) {
    timing.spans = std::move(spans_);
    timing.flags = std::move(flags_);
  }

 private:
  const size_t most_;
  std::vector<TracedSpan> spans_;
  std::vector<TracedFlag> flags_;
};

struct StageState {
  explicit StageState(const NpuPart& part) : memory(part.memory_rate()), l2(part.l2_rate()) {}

  double now = 0;
  std::vector<CoreState> cores;
  int64_t used_cores = 0, used_lanes = 0;
  SharedRate memory, l2;
  std::vector<TransferStart> starts;  // a heap
};

// Cores whose tiles, and whose lanes' tiles, are of the same classes become one.
void gather_cores(std::vector<ProgramWork>& programs, const std::vector<CoreShares>& shares,
                  const NpuPart& part, StageState& state);

}  // namespace dvm
