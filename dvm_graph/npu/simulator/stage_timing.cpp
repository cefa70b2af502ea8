#include "npu/simulator/stage_timing.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "npu/simulator/periods.h"
#include "npu/simulator/stage_state.h"

namespace dvm {
namespace {

constexpr int kMostEvents = 16;  // flags of a pair of queues

class Simulation {
 public:
  Simulation(const NpuPart& part, size_t most_spans)
      : part_(part), state_(part), trace_(most_spans), periods_(state_, trace_) {}

  StageTiming run(std::vector<ProgramWork>& programs, const std::vector<CoreShares>& shares) {
    gather_cores(programs, shares, part_, state_);
    for (uint32_t c = 0; c < state_.cores.size(); ++c) progress(c);
    while (next_event()) periods_.look();
    return result();
  }

 private:
  // What a core does until it waits for a transfer.
  void progress(uint32_t index) {
    progress_alone(index);
    while (!signalled_.empty()) {
      const uint32_t other = signalled_.back();
      signalled_.pop_back();
      progress_alone(other);
    }
  }

  void progress_alone(uint32_t index) {
    CoreState& core = state_.cores[index];
    for (bool moved = true; moved;) {
      moved = decode(core);
      for (int q = 0; q < kUnitQueues; ++q) moved |= drain(index, q);
    }
    if (!core.decoded()) return;
    if (!idle(core)) return;
    for (const UnitQueue& queue : core.queues) core.end = std::max(core.end, queue.ready);
  }

  static bool idle(const CoreState& core) {
    return std::all_of(core.queues.begin(), core.queues.end(),
                       [](const UnitQueue& queue) { return queue.idle(); });
  }

  bool decode(CoreState& core) {
    bool moved = false;
    while (!core.decoded()) {
      auto& [until, work] = core.programs[core.program];
      if (core.tile == until) {  // the next program begins when this one is done
        if (!idle(core)) return moved;
        for (UnitQueue& queue : core.queues) core.scalar = std::max(core.scalar, queue.ready);
        for (FlagSignals& signals : core.flags) signals.count = 0;
        ++core.program;
        continue;
      }
      const std::span<const UnitStep> steps =
          work->steps(core.tiles[static_cast<size_t>(core.tile)]);
      while (core.step < steps.size()) {
        const UnitStep& step = steps[core.step];
        UnitQueue& queue = core.queues[step.queue];
        if (queue.waiting.full()) {
          queue.holds_decoder = true;
          return moved;
        }
        core.scalar += step.decode;
        core.totals.decoding += step.decode;
        core.totals.instructions += 1;
        ++simulated_;
        queue.waiting.push({&step, core.scalar, core.tile});
        ++core.step;
        moved = true;
      }
      core.step = 0;
      ++core.tile;
    }
    return moved;
  }

  // Runs what a queue can run; whether it did anything.
  bool drain(uint32_t index, int q) {
    CoreState& core = state_.cores[index];
    UnitQueue& queue = core.queues[static_cast<size_t>(q)];
    UnitTiming& unit = core.totals.units[static_cast<size_t>(q)];
    bool moved = false;
    while (queue.moving.step == nullptr && !queue.waiting.empty()) {
      const IssuedStep issued = queue.waiting[0];
      const UnitStep& step = *issued.step;
      const double start = std::max(queue.ready, issued.at);
      if (step.kind == UnitStep::Kind::wait) {
        uint32_t from = index;
        const double set = take_signal(core, issued, from);
        if (set < 0) return moved;
        unit.for_decode += start - queue.ready;
        unit.for_flag[step.peer] += std::max(0.0, set - start);
        queue.request = std::max({queue.request, issued.at, set});
        queue.ready = std::max(start, set);
        trace_.add_flag(core, step, state_.cores[from].first, set, queue.ready);
      } else {
        unit.for_decode += start - queue.ready;
        queue.request = std::max(queue.request, issued.at);
        queue.ready = start;
        run(index, q, issued);
      }
      queue.waiting.pop();
      if (queue.holds_decoder) {
        queue.holds_decoder = false;
        core.scalar = std::max({core.scalar, start, state_.now});
      }
      moved = true;
    }
    return moved;
  }

  void run(uint32_t index, int q, const IssuedStep& issued) {
    CoreState& core = state_.cores[index];
    UnitQueue& queue = core.queues[static_cast<size_t>(q)];
    const UnitStep& step = *issued.step;
    if (step.kind == UnitStep::Kind::set) {
      set_flag(core, issued, queue.ready);
      return;
    }
    UnitTiming& unit = core.totals.units[static_cast<size_t>(q)];
    unit.instructions += 1;
    core.totals.flops += step.flops;
    if (step.kind == UnitStep::Kind::transfer) {
      queue.moving = issued;
      queue.began = queue.ready;
      // Its start-up is latency: it passes while the queue moves what was asked for before.
      const double first = std::max(queue.ready, queue.request + step.cycles);
      state_.starts.push_back({first, order_++, index * kUnitQueues + static_cast<uint32_t>(q)});
      std::push_heap(state_.starts.begin(), state_.starts.end());
      return;
    }
    unit.busy += step.cycles;
    trace_.add(core, q, step.family, queue.ready, queue.ready + step.cycles, issued.tile);
    queue.ready += step.cycles;
  }

  // What a flag adds to or takes from: that of the core, or those between a cube core and lanes.
  template <class Visit>
  void visit_signals(CoreState& core, const IssuedStep& issued, bool sets, Visit visit) {
    const UnitStep& step = *issued.step;
    if (!step.between_cores) {
      const int from = sets ? step.queue : step.peer, to = sets ? step.peer : step.queue;
      const size_t number = number_of(from, to, step.event);
      if (number >= core.flags.size()) core.flags.resize(number + 1);
      return visit(core.flags[number], core.first);
    }
    CoreState& cube = state_.cores[core.head];
    const auto [first, end] = core.lanes_at(static_cast<Handed>(step.event), issued.tile);
    for (int lane = first; lane < end; ++lane) {
      const auto number = static_cast<size_t>(lane);
      visit((core.lane < 0) == sets ? cube.for_lane[number] : cube.from_lane[number],
            core.lane < 0 ? core.head + 1 + static_cast<uint32_t>(lane) : core.head);
    }
  }

  // When the last signal was given that a wait takes, and by whom; less than 0: not all are.
  double take_signal(CoreState& core, const IssuedStep& issued, uint32_t& from) {
    bool all = true;
    double set = 0;
    visit_signals(core, issued, false, [&](const FlagSignals& signals, uint32_t by) {
      all &= signals.count > 0;
      if (signals.count == 0 || signals.at[0] < set) return;
      set = signals.at[0];
      if (issued.step->between_cores) from = by;
    });
    if (!all) return -1;
    visit_signals(core, issued, false, [](FlagSignals& signals, uint32_t) {
      std::copy_n(signals.at.begin() + 1, --signals.count, signals.at.begin());
    });
    return set;
  }

  void set_flag(CoreState& core, const IssuedStep& issued, double at) {
    visit_signals(core, issued, true, [&](FlagSignals& signals, uint32_t other) {
      if (signals.count == kMostSignals) throw std::logic_error("a flag is set without a wait");
      signals.at[static_cast<size_t>(signals.count++)] = at;
      if (issued.step->between_cores) signalled_.push_back(other);
    });
  }

  // Flags are numbered as they are met: programs use few of all there are.
  size_t number_of(int from, int to, int event) {
    const int flag = (from * kUnitQueues + to) * kMostEvents + event;
    uint16_t& number = flag_numbers_[static_cast<size_t>(flag)];
    if (number == 0) number = ++flags_met_;
    return number - 1u;
  }

  // The next thing that happens. False: nothing does any more.
  bool next_event() {
    const double start = state_.starts.empty() ? kNever : state_.starts.front().at;
    const double l2 = state_.l2.next_end(), memory = state_.memory.next_end();
    const double soonest = std::min({start, l2, memory});
    if (soonest == kNever) return false;
    state_.now = std::max(state_.now, soonest);
    if (soonest == start) {
      std::pop_heap(state_.starts.begin(), state_.starts.end());
      const uint32_t transfer = state_.starts.back().transfer;
      state_.starts.pop_back();
      move(transfer);
    } else if (soonest == memory) {
      end_flow(state_.memory.end_next(state_.now));
    } else {
      end_flow(state_.l2.end_next(state_.now));
    }
    return true;
  }

  void move(uint32_t transfer) {
    CoreState& core = state_.cores[transfer / kUnitQueues];
    UnitQueue& queue = core.queues[transfer % kUnitQueues];
    const UnitStep& step = *queue.moving.step;
    queue.alone =
        state_.now - queue.began +
        std::max(step.bytes / step.limit, step.memory_bytes / part_.bandwidth_hbm_per_core);
    if (step.bytes > 0) {
      state_.l2.start(state_.now, step.limit, core.weight, step.bytes, transfer);
      ++queue.flows;
    }
    if (step.memory_bytes > 0) {
      state_.memory.start(state_.now, part_.bandwidth_hbm_per_core, core.weight, step.memory_bytes,
                          transfer);
      ++queue.flows;
    }
    if (queue.flows == 0) end_transfer(transfer);
  }

  void end_flow(uint32_t transfer) {
    UnitQueue& queue = state_.cores[transfer / kUnitQueues].queues[transfer % kUnitQueues];
    if (--queue.flows == 0) end_transfer(transfer);
  }

  void end_transfer(uint32_t transfer) {
    const uint32_t index = transfer / kUnitQueues;
    const auto q = static_cast<int>(transfer % kUnitQueues);
    CoreState& core = state_.cores[index];
    UnitQueue& queue = core.queues[static_cast<size_t>(q)];
    const IssuedStep issued = std::exchange(queue.moving, {});
    const UnitStep& step = *issued.step;
    queue.ready = state_.now;
    UnitTiming& unit = core.totals.units[static_cast<size_t>(q)];
    unit.busy += state_.now - queue.began;
    unit.for_others += std::max(0.0, state_.now - queue.began - queue.alone);
    (step.writes ? core.totals.written : core.totals.read) += step.bytes;
    (step.writes ? core.totals.memory_written : core.totals.memory_read) += step.memory_bytes;
    trace_.add(core, q, step.family, queue.began, state_.now, issued.tile);
    progress(index);
  }

  StageTiming result() {
    StageTiming timing;
    timing.cores = state_.used_cores;
    timing.lanes = state_.used_lanes;
    timing.simulated = simulated_;
    CoreTotals all, of_cores, of_lanes;
    for (const CoreState& core : state_.cores) {
      if (!idle(core)) throw std::logic_error("a program waits for a flag that nobody sets");
      timing.cycles = std::max(timing.cycles, core.end);
      const auto add = [&](double& a, double b) { a += core.weight * b; };
      change_totals(all, core.totals, add);
      change_totals(core.lane < 0 ? of_cores : of_lanes, core.totals, add);
      timing.traced_cores.push_back({core.first, static_cast<int64_t>(core.weight)});
    }
    timing.units = of_cores.units;
    timing.lane_units = of_lanes.units;
    timing.decoding = of_cores.decoding;
    timing.read = all.read;
    timing.written = all.written;
    timing.memory_read = all.memory_read;
    timing.memory_written = all.memory_written;
    timing.flops = all.flops;
    timing.instructions = all.instructions;
    trace_.move_to(timing);
    return timing;
  }

  const NpuPart& part_;
  StageState state_;
  StageTrace trace_;
  Periods periods_;
  std::vector<uint32_t> signalled_;  // cores that may go on
  std::array<uint16_t, kUnitQueues * kUnitQueues * kMostEvents> flag_numbers_{};  // from 1
  uint16_t flags_met_ = 0;
  uint64_t order_ = 0;
  int64_t simulated_ = 0;
};

}  // namespace

StageTiming simulate_stage(std::vector<ProgramWork>& programs, const std::vector<CoreShares>& cores,
                           const NpuPart& part, size_t most_spans) {
  return Simulation(part, most_spans).run(programs, cores);
}

}  // namespace dvm
