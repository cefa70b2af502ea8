#include "npu/simulator/periods.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dvm {
namespace {

constexpr size_t kSnapshots = 64;    // that a state is compared with: periods of so many tiles
constexpr double kSameState = 1e-6;  // of a period
constexpr int64_t kLeastToSkip = 4;  // tiles that are worth looking for a period
// Before now, a time makes no difference any more: longer than any start-up.
constexpr double kLongAgo = 1e5;

bool same(const Periods::Snapshot& a, const Periods::Snapshot& b) {
  if (a.state.size() != b.state.size()) return false;
  const double tolerance = kSameState * (b.at - a.at);
  for (size_t i = 0; i < a.state.size(); ++i) {
    if (std::abs(a.state[i] - b.state[i]) > tolerance) return false;
  }
  return true;
}

}  // namespace

void Periods::look() {
  while (watched_ < state_.cores.size() && state_.cores[watched_].decoded()) ++watched_;
  if (watched_ == state_.cores.size()) return;
  const CoreState& core = state_.cores[watched_];
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
Periods::Snapshot Periods::take_snapshot() const {
  Snapshot snapshot;
  snapshot.at = state_.now;
  std::vector<double>& values = snapshot.state;
  const auto from_now = [&](double at) { return std::max(at - state_.now, 0.0); };
  for (const CoreState& core : state_.cores) {
    snapshot.tiles.push_back(core.tile);
    snapshot.totals.push_back(core.totals);
    values.push_back(static_cast<double>(core.step));
    values.push_back(static_cast<double>(core.program));
    values.push_back(from_now(core.scalar));
    for (const UnitQueue& queue : core.queues) {
      values.push_back(static_cast<double>(queue.waiting.size()));
      values.push_back(from_now(queue.ready));
      values.push_back(std::max(queue.request - state_.now, -kLongAgo));
      for (size_t i = 0; i < queue.waiting.size(); ++i) {
        values.push_back(static_cast<double>(core.tile - queue.waiting[i].tile));
        values.push_back(from_now(queue.waiting[i].at));
      }
    }
    for (const FlagSignals& signals : core.for_lane) values.push_back(signals.count);
    for (const FlagSignals& signals : core.from_lane) values.push_back(signals.count);
    for (const auto* const flags : {&core.flags, &core.for_lane, &core.from_lane}) {
      for (const FlagSignals& signals : *flags) {
        for (int i = 0; i < signals.count; ++i)
          values.push_back(from_now(signals.at[static_cast<size_t>(i)]));
      }
    }
  }
  const size_t fixed = values.size();
  values.resize(fixed + 2 * state_.cores.size() * kUnitQueues);
  state_.l2.remaining(state_.now,
                      [&](uint32_t flow, double bytes) { values[fixed + 2 * flow] = bytes; });
  state_.memory.remaining(
      state_.now, [&](uint32_t flow, double bytes) { values[fixed + 2 * flow + 1] = bytes; });
  for (const TransferStart& start : state_.starts) {
    values[fixed + 2 * start.transfer] = start.at - state_.now;
    values[fixed + 2 * start.transfer + 1] = -1;
  }
  return snapshot;
}

// For how many periods since the snapshot, no more than so many, all cores go on with the same
// tiles.
int64_t Periods::periods_ahead(const Snapshot& since, int64_t most) const {
  int64_t periods = most;
  bool any = false;
  for (size_t c = 0; c < state_.cores.size(); ++c) {
    const CoreState& core = state_.cores[c];
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

void Periods::skip(const Snapshot& since, const Snapshot& here, int64_t periods) {
  const auto times = static_cast<double>(periods);
  const double delay = times * (state_.now - since.at);
  for (size_t c = 0; c < state_.cores.size(); ++c) {
    CoreState& core = state_.cores[c];
    const int64_t tiles = periods * (core.tile - since.tiles[c]);
    if (core.decoded()) continue;
    trace_.add(core, kUnitQueues, Family::count_, state_.now, state_.now + delay, tiles);
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
      for (FlagSignals& signals : *flags) {
        for (double& set : signals.at) set += delay;
      }
    }
    CoreTotals period = here.totals[c];
    change_totals(period, since.totals[c], [](double& a, double b) { a -= b; });
    change_totals(core.totals, period, [&](double& a, double b) { a += times * b; });
  }
  for (TransferStart& start : state_.starts) start.at += delay;
  state_.l2.delay(delay);
  state_.memory.delay(delay);
  state_.now += delay;
  snapshots_.clear();
}

}  // namespace dvm
