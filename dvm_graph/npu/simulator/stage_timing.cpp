#include "npu/simulator/stage_timing.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <stdexcept>
#include <utility>

#include "npu/simulator/shared_rate.h"

namespace dvm {
namespace {

constexpr int kMostEvents = 16;      // flags of a pair of queues
constexpr int kMostSignals = 4;      // of a flag that nobody has taken yet
constexpr size_t kSnapshots = 64;    // that a state is compared with: periods of so many tiles
constexpr double kSameState = 1e-6;  // of a period
constexpr int64_t kLeastToSkip = 4;  // tiles that are worth looking for a period

// Totals that a skipped period adds to: one for each core that is simulated.
struct Totals {
  std::array<UnitTiming, kUnitQueues> units{};
  double decoding = 0, read = 0, written = 0, memory_read = 0, memory_written = 0;
  double flops = 0, instructions = 0;
};

template <class Change>
void change_all(Totals& a, const Totals& b, Change change) {
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

struct Issued {
  const UnitStep* step = nullptr;
  double at = 0;
  int64_t tile = 0;
};

// First in, first out, of no more than were said.
class Waiting {
 public:
  explicit Waiting(size_t most) : entries_(most) {}
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == entries_.size(); }
  Issued& operator[](size_t i) { return entries_[(first_ + i) % entries_.size()]; }
  const Issued& operator[](size_t i) const { return entries_[(first_ + i) % entries_.size()]; }
  void push(const Issued& entry) { (*this)[size_++] = entry; }
  void pop() {
    first_ = (first_ + 1) % entries_.size();
    --size_;
  }

 private:
  std::vector<Issued> entries_;
  size_t first_ = 0, size_ = 0;
};

struct UnitQueue {
  explicit UnitQueue(size_t most) : waiting(most) {}

  Waiting waiting;
  bool holds_decoder = false;   // the scalar unit waits for a place in it
  double ready = 0;             // when it is done with all before
  double request = 0;           // from when on the next transfer may ask for its bytes
  Issued moving;                // the transfer that is begun; no step: none is
  double began = 0, alone = 0;  // of it: its start, and its time without others
  int flows = 0;                // of it, in flight

  bool idle() const { return moving.step == nullptr && waiting.empty(); }
};

// When a flag was set, for each time that nobody has taken yet.
struct Signals {
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
  std::vector<Signals> flags;      // within it, by the number of the flag
  std::vector<Signals> for_lane;   // of a cube core: to each lane,
  std::vector<Signals> from_lane;  // and from each
  Totals totals;
  double end = 0;

  // The lanes that a flag between cores is for.
  std::pair<int, int> lanes_at(Handed handed, int64_t tile_number) const {
    if (lane >= 0) return {lane, lane + 1};
    const auto at = std::upper_bound(
        programs.begin(), programs.end(), tile_number,
        [](int64_t number, const auto& stretch) { return number < stretch.first; });
    const ProgramHeader& header = at->second->program().header();
    const int64_t begin = at == programs.begin() ? 0 : std::prev(at)->first;
    const Ring& ring = header.ring(handed);
    if (handed == Handed::rows) return {ring.first_lane, ring.end_lane()};
    const auto turn = (tile_number - begin) / header.tile_group % ring.lanes;
    const int first = ring.first_lane + static_cast<int>(turn);
    return {first, first + 1};
  }
  bool same_work(const CoreState& other) const {
    return other.programs == programs && other.tiles == tiles;
  }
  bool decoded() const { return tile == static_cast<int64_t>(tiles.size()); }
};

struct Start {
  double at;
  uint64_t order;
  uint32_t transfer;

  bool operator<(const Start& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

struct Snapshot {
  double at = 0;
  std::vector<double> state;
  std::vector<int64_t> tiles;
  std::vector<Totals> totals;
};

class Simulation {
 public:
  Simulation(std::vector<ProgramWork>& programs, const NpuPart& part, size_t most_spans)
      : programs_(programs),
        part_(part),
        most_spans_(most_spans),
        memory_(part.memory_rate()),
        l2_(part.l2_rate()) {}

  StageTiming run(const std::vector<CoreShares>& cores) {
    gather(cores);
    for (uint32_t c = 0; c < cores_.size(); ++c) progress(c);
    while (next_event()) look_for_period();
    return result();
  }

 private:
  // Cores whose tiles, and whose lanes' tiles, are of the same classes become one.
  void gather(const std::vector<CoreShares>& cores) {
    std::vector<CoreState> team;
    for (uint32_t number = 0; number < cores.size(); ++number) {
      team.assign(1, {});
      team[0].first = number;
      int64_t lanes = 0;
      for (const Share& share : cores[number]) {
        lanes = std::max<int64_t>(lanes, programs_[share.program].program().header().lanes());
        add_share(team[0], share.program, share.groups, 0);
      }
      if (team[0].tiles.empty()) continue;
      ++used_cores_;
      for (int lane = 0; lane < lanes; ++lane) {
        CoreState& state = team.emplace_back();
        state.first = static_cast<uint32_t>(cores.size()) +
                      number * static_cast<uint32_t>(part_.vector_per_cube()) +
                      static_cast<uint32_t>(lane);
        state.lane = lane;
        for (const Share& share : cores[number]) {
          const ProgramHeader& header = programs_[share.program].program().header();
          if (lane >= header.lanes()) continue;
          add_share(state, share.program + static_cast<uint32_t>(header.program_of(lane)),
                    share.groups, lane);
        }
        used_lanes_ += !state.tiles.empty();
      }
      if (!merge(team)) add_team(team);
    }
  }

  void add_share(CoreState& state, uint32_t program, std::span<const GroupRange> groups,
                 int64_t lane) {
    ProgramWork& work = programs_[program];
    const size_t before = state.tiles.size();
    work.classes(groups, lane, state.tiles);
    if (state.tiles.size() > before)
      state.programs.emplace_back(static_cast<int64_t>(state.tiles.size()), &work);
  }

  bool merge(const std::vector<CoreState>& team) {
    for (size_t c = 0; c < cores_.size(); c += 1 + cores_[c].followers) {
      if (cores_[c].followers + 1 != team.size()) continue;
      const auto* const known = &cores_[c];
      if (!std::equal(team.begin(), team.end(), known,
                      [](const CoreState& a, const CoreState& b) { return a.same_work(b); }))
        continue;
      for (size_t i = 0; i < team.size(); ++i) cores_[c + i].weight += 1;
      return true;
    }
    return false;
  }

  void add_team(std::vector<CoreState>& team) {
    const auto head = static_cast<uint32_t>(cores_.size());
    for (CoreState& state : team) {
      state.head = head;
      state.queues.resize(kUnitQueues, UnitQueue(static_cast<size_t>(part_.scalar_queue)));
      cores_.push_back(std::move(state));
    }
    CoreState& cube = cores_[head];
    cube.followers = static_cast<uint32_t>(team.size() - 1);
    cube.for_lane.resize(cube.followers);
    cube.from_lane.resize(cube.followers);
  }

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
    CoreState& core = cores_[index];
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
        for (Signals& signals : core.flags) signals.count = 0;
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
    CoreState& core = cores_[index];
    UnitQueue& queue = core.queues[static_cast<size_t>(q)];
    UnitTiming& unit = core.totals.units[static_cast<size_t>(q)];
    bool moved = false;
    while (queue.moving.step == nullptr && !queue.waiting.empty()) {
      const Issued issued = queue.waiting[0];
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
        trace_flag(core, issued, cores_[from].first, set, queue.ready);
      } else {
        unit.for_decode += start - queue.ready;
        queue.request = std::max(queue.request, issued.at);
        queue.ready = start;
        run(index, q, issued);
      }
      queue.waiting.pop();
      if (queue.holds_decoder) {
        queue.holds_decoder = false;
        core.scalar = std::max({core.scalar, start, now_});
      }
      moved = true;
    }
    return moved;
  }

  void run(uint32_t index, int q, const Issued& issued) {
    CoreState& core = cores_[index];
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
      starts_.push_back({first, order_++, index * kUnitQueues + static_cast<uint32_t>(q)});
      std::push_heap(starts_.begin(), starts_.end());
      return;
    }
    unit.busy += step.cycles;
    trace(core, q, step.family, queue.ready, queue.ready + step.cycles, issued.tile);
    queue.ready += step.cycles;
  }

  // What a flag adds to or takes from: that of the core, or those between a cube core and lanes.
  template <class Visit>
  void visit_signals(CoreState& core, const Issued& issued, bool sets, Visit visit) {
    const UnitStep& step = *issued.step;
    if (!step.between_cores) {
      const int from = sets ? step.queue : step.peer, to = sets ? step.peer : step.queue;
      const size_t number = number_of(from, to, step.event);
      if (number >= core.flags.size()) core.flags.resize(number + 1);
      return visit(core.flags[number], core.first);
    }
    CoreState& cube = cores_[core.head];
    const auto [first, end] = core.lanes_at(static_cast<Handed>(step.event), issued.tile);
    for (int lane = first; lane < end; ++lane) {
      const auto number = static_cast<size_t>(lane);
      visit((core.lane < 0) == sets ? cube.for_lane[number] : cube.from_lane[number],
            core.lane < 0 ? core.head + 1 + static_cast<uint32_t>(lane) : core.head);
    }
  }

  // When the last signal was given that a wait takes, and by whom; less than 0: not all are.
  double take_signal(CoreState& core, const Issued& issued, uint32_t& from) {
    bool all = true;
    double set = 0;
    visit_signals(core, issued, false, [&](const Signals& signals, uint32_t by) {
      all &= signals.count > 0;
      if (signals.count == 0 || signals.at[0] < set) return;
      set = signals.at[0];
      if (issued.step->between_cores) from = by;
    });
    if (!all) return -1;
    visit_signals(core, issued, false, [](Signals& signals, uint32_t) {
      std::copy_n(signals.at.begin() + 1, --signals.count, signals.at.begin());
    });
    return set;
  }

  void set_flag(CoreState& core, const Issued& issued, double at) {
    visit_signals(core, issued, true, [&](Signals& signals, uint32_t other) {
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
    const double start = starts_.empty() ? kNever : starts_.front().at;
    const double l2 = l2_.next_end(), memory = memory_.next_end();
    const double soonest = std::min({start, l2, memory});
    if (soonest == kNever) return false;
    now_ = std::max(now_, soonest);
    if (soonest == start) {
      std::pop_heap(starts_.begin(), starts_.end());
      const uint32_t transfer = starts_.back().transfer;
      starts_.pop_back();
      move(transfer);
    } else if (soonest == memory) {
      end_flow(memory_.end_next(now_));
    } else {
      end_flow(l2_.end_next(now_));
    }
    return true;
  }

  void move(uint32_t transfer) {
    CoreState& core = cores_[transfer / kUnitQueues];
    UnitQueue& queue = core.queues[transfer % kUnitQueues];
    const UnitStep& step = *queue.moving.step;
    queue.alone =
        now_ - queue.began +
        std::max(step.bytes / step.limit, step.memory_bytes / part_.bandwidth_hbm_per_core);
    if (step.bytes > 0) {
      l2_.start(now_, step.limit, core.weight, step.bytes, transfer);
      ++queue.flows;
    }
    if (step.memory_bytes > 0) {
      memory_.start(now_, part_.bandwidth_hbm_per_core, core.weight, step.memory_bytes, transfer);
      ++queue.flows;
    }
    if (queue.flows == 0) end_transfer(transfer);
  }

  void end_flow(uint32_t transfer) {
    UnitQueue& queue = cores_[transfer / kUnitQueues].queues[transfer % kUnitQueues];
    if (--queue.flows == 0) end_transfer(transfer);
  }

  void end_transfer(uint32_t transfer) {
    const uint32_t index = transfer / kUnitQueues;
    const auto q = static_cast<int>(transfer % kUnitQueues);
    CoreState& core = cores_[index];
    UnitQueue& queue = core.queues[static_cast<size_t>(q)];
    const Issued issued = std::exchange(queue.moving, {});
    const UnitStep& step = *issued.step;
    queue.ready = now_;
    UnitTiming& unit = core.totals.units[static_cast<size_t>(q)];
    unit.busy += now_ - queue.began;
    unit.for_others += std::max(0.0, now_ - queue.began - queue.alone);
    (step.writes ? core.totals.written : core.totals.read) += step.bytes;
    (step.writes ? core.totals.memory_written : core.totals.memory_read) += step.memory_bytes;
    trace(core, q, step.family, queue.began, now_, issued.tile);
    progress(index);
  }

  // ---- equal tiles

  // Whenever the first core that still decodes has come to another tile.
  void look_for_period() {
    while (watched_ < cores_.size() && cores_[watched_].decoded()) ++watched_;
    if (watched_ == cores_.size()) return;
    const CoreState& core = cores_[watched_];
    if (core.tile == watched_tile_ && watched_core_ == watched_) return;
    if (watched_core_ != watched_) snapshots_.clear();
    watched_tile_ = core.tile;
    watched_core_ = watched_;
    if (static_cast<int64_t>(core.tiles.size()) - core.tile < kLeastToSkip) return;
    Snapshot snapshot = take_snapshot();
    for (auto known = snapshots_.rbegin(); known != snapshots_.rend(); ++known) {
      if (periods_ahead(*known, 1) < 1 || !same(*known, snapshot)) continue;
      skip(*known, snapshot, periods_ahead(*known, INT64_MAX));
      return;
    }
    if (snapshots_.size() == kSnapshots) snapshots_.pop_front();
    snapshots_.push_back(std::move(snapshot));
  }

  // What decides the future of all cores, but for the tiles to come: times from now on. What was
  // over before now is as if it were over now.
  Snapshot take_snapshot() const {
    Snapshot snapshot;
    snapshot.at = now_;
    std::vector<double>& state = snapshot.state;
    const auto from_now = [&](double at) { return std::max(at - now_, 0.0); };
    for (const CoreState& core : cores_) {
      snapshot.tiles.push_back(core.tile);
      snapshot.totals.push_back(core.totals);
      state.push_back(static_cast<double>(core.step));
      state.push_back(static_cast<double>(core.program));
      state.push_back(from_now(core.scalar));
      for (const UnitQueue& queue : core.queues) {
        state.push_back(static_cast<double>(queue.waiting.size()));
        state.push_back(from_now(queue.ready));
        state.push_back(std::max(queue.request - now_, -kLongAgo));
        for (size_t i = 0; i < queue.waiting.size(); ++i) {
          state.push_back(static_cast<double>(core.tile - queue.waiting[i].tile));
          state.push_back(from_now(queue.waiting[i].at));
        }
      }
      for (const Signals& signals : core.for_lane) state.push_back(signals.count);
      for (const Signals& signals : core.from_lane) state.push_back(signals.count);
      for (const auto* const flags : {&core.flags, &core.for_lane, &core.from_lane}) {
        for (const Signals& signals : *flags) {
          for (int i = 0; i < signals.count; ++i)
            state.push_back(from_now(signals.at[static_cast<size_t>(i)]));
        }
      }
    }
    const size_t fixed = state.size();
    state.resize(fixed + 2 * cores_.size() * kUnitQueues);
    l2_.remaining(now_, [&](uint32_t flow, double bytes) { state[fixed + 2 * flow] = bytes; });
    memory_.remaining(now_,
                      [&](uint32_t flow, double bytes) { state[fixed + 2 * flow + 1] = bytes; });
    for (const Start& start : starts_) {
      state[fixed + 2 * start.transfer] = start.at - now_;
      state[fixed + 2 * start.transfer + 1] = -1;
    }
    return snapshot;
  }

  static bool same(const Snapshot& a, const Snapshot& b) {
    if (a.state.size() != b.state.size()) return false;
    const double tolerance = kSameState * (b.at - a.at);
    for (size_t i = 0; i < a.state.size(); ++i) {
      if (std::abs(a.state[i] - b.state[i]) > tolerance) return false;
    }
    return true;
  }

  // For how many periods since the snapshot, no more than so many, all cores go on with the same
  // tiles.
  int64_t periods_ahead(const Snapshot& since, int64_t most) const {
    int64_t periods = most;
    bool any = false;
    for (size_t c = 0; c < cores_.size(); ++c) {
      const CoreState& core = cores_[c];
      const int64_t period = core.tile - since.tiles[c];
      if (period == 0) {
        if (!core.decoded()) return 0;
        continue;
      }
      any = true;
      if (core.program > 0 && since.tiles[c] < core.programs[core.program - 1].first) return 0;
      const int64_t left = core.programs[core.program].first - core.tile;
      const int64_t until = core.tile + (left / period > periods ? periods * period + 1 : left);
      int64_t like = core.tile;
      while (like < until && core.tiles[static_cast<size_t>(like)] ==
                                 core.tiles[static_cast<size_t>(like - period)]) {
        ++like;
      }
      periods = std::min(periods, (like - 1 - core.tile) / period);
      if (periods < 1) return 0;
    }
    return any ? periods : 0;
  }

  void skip(const Snapshot& since, const Snapshot& here, int64_t periods) {
    const auto times = static_cast<double>(periods);
    const double delay = times * (now_ - since.at);
    for (size_t c = 0; c < cores_.size(); ++c) {
      CoreState& core = cores_[c];
      const int64_t tiles = periods * (core.tile - since.tiles[c]);
      if (core.decoded()) continue;
      trace(core, kUnitQueues, Family::count_, now_, now_ + delay, tiles);
      core.tile += tiles;
      core.scalar += delay;
      for (UnitQueue& queue : core.queues) {
        queue.ready += delay;
        queue.request += delay;
        queue.began += delay;
        queue.moving.tile += tiles;
        for (size_t i = 0; i < queue.waiting.size(); ++i) {
          queue.waiting[i].at += delay;
          queue.waiting[i].tile += tiles;
        }
      }
      for (auto* const flags : {&core.flags, &core.for_lane, &core.from_lane}) {
        for (Signals& signals : *flags) {
          for (double& set : signals.at) set += delay;
        }
      }
      Totals period = here.totals[c];
      change_all(period, since.totals[c], [](double& a, double b) { a -= b; });
      change_all(core.totals, period, [&](double& a, double b) { a += times * b; });
    }
    for (Start& start : starts_) start.at += delay;
    l2_.delay(delay);
    memory_.delay(delay);
    now_ += delay;
    snapshots_.clear();
  }

  // ---- what it was

  void trace(const CoreState& core, int queue, Family family, double start, double end,
             int64_t tile) {
    if (spans_.size() >= most_spans_) return;
    spans_.push_back({core.first, static_cast<uint8_t>(queue), family, start, end, tile});
  }
  void trace_flag(const CoreState& core, const Issued& issued, uint32_t from, double set,
                  double taken) {
    if (flags_.size() >= most_spans_ || spans_.size() >= most_spans_) return;
    const UnitStep& step = *issued.step;
    flags_.push_back({core.first, from, step.peer, step.queue, set, taken});
  }

  StageTiming result() {
    StageTiming timing;
    timing.cores = used_cores_;
    timing.lanes = used_lanes_;
    timing.simulated = simulated_;
    Totals all, of_cores, of_lanes;
    for (const CoreState& core : cores_) {
      if (!idle(core)) throw std::logic_error("a program waits for a flag that nobody sets");
      timing.cycles = std::max(timing.cycles, core.end);
      const auto add = [&](double& a, double b) { a += core.weight * b; };
      change_all(all, core.totals, add);
      change_all(core.lane < 0 ? of_cores : of_lanes, core.totals, add);
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
    timing.spans = std::move(spans_);
    timing.flags = std::move(flags_);
    return timing;
  }

  // Before now, a time makes no difference any more: longer than any start-up.
  static constexpr double kLongAgo = 1e5;

  std::vector<ProgramWork>& programs_;
  const NpuPart& part_;
  const size_t most_spans_;
  std::vector<CoreState> cores_;
  int64_t used_cores_ = 0, used_lanes_ = 0;
  std::vector<uint32_t> signalled_;  // cores that may go on
  std::array<uint16_t, kUnitQueues * kUnitQueues * kMostEvents> flag_numbers_{};  // from 1
  uint16_t flags_met_ = 0;
  SharedRate memory_, l2_;
  std::vector<Start> starts_;  // a heap
  uint64_t order_ = 0;
  double now_ = 0;
  int64_t simulated_ = 0;
  size_t watched_ = 0, watched_core_ = 0;
  int64_t watched_tile_ = 0;
  std::deque<Snapshot> snapshots_;
  std::vector<TracedSpan> spans_;
  std::vector<TracedFlag> flags_;
};

}  // namespace

StageTiming simulate_stage(std::vector<ProgramWork>& programs, const std::vector<CoreShares>& cores,
                           const NpuPart& part, size_t most_spans) {
  return Simulation(programs, part, most_spans).run(cores);
}

}  // namespace dvm
