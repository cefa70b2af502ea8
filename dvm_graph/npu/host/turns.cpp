// The host device, turn by turn: the workers stay in one stage while stages of turns come and go.
//
// Whether short turns gain by several cores hangs on what handing claims over and memory between
// them takes here and now, so it is tried: some turns with all cores, some with the caller alone,
// and what took less goes on. Who works at a claim changes nothing in what it computes.
#include "npu/host/device.h"

#include <algorithm>
#include <chrono>

#include "npu/host/relax.h"

namespace dvm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpinsPerClose = 4096;
constexpr int kSpinsPerLook = 64;  // at the shares of others
constexpr int kTrials = 3;         // turns of each kind; the fastest counts

// Whether a turn goes to all cores.
class Sharing {
 public:
  // `handing_over`: what the barriers of a turn are predicted to take. One that takes longer than
  // twice that with all cores gains by them, if it does not just wait for one that is kept from
  // running.
  Sharing(bool possible, std::chrono::duration<double> handing_over)
      : handing_over_(handing_over), shares_(possible), decided_(!possible) {}

  bool shares() const { return shares_; }
  void begin() {
    if (!decided_) start_ = Clock::now();
  }
  void end() {
    if (decided_) return;
    Clock::duration& best = best_[shares_ ? 0 : 1];
    best = std::min(best, Clock::now() - start_);
    if (++turns_ < kTrials) return;
    if (turns_ == kTrials) {
      shares_ = decided_ = best > 2 * handing_over_;
    } else if (turns_ == 2 * kTrials) {
      shares_ = best_[0] < best_[1];
      decided_ = true;
    }
  }

 private:
  const std::chrono::duration<double> handing_over_;
  bool shares_, decided_;
  int turns_ = 0;
  Clock::time_point start_;
  Clock::duration best_[2] = {Clock::duration::max(), Clock::duration::max()};  // shared, alone
};

}  // namespace

// Rows of a batch, say: nobody waits for anybody before the end.
Trap HostDevice::run_loops(std::span<const TurnLoop> loops) {
  if (loops.empty()) return {};
  trap_ = Trap{};
  trapped_.store(false, std::memory_order_relaxed);
  dropped_.store(false, std::memory_order_relaxed);
  resting_.store(false, std::memory_order_relaxed);
  loops_ = loops;
  next_loop_.store(0, std::memory_order_relaxed);
  if (loops.size() > 1) {
    placement_.keep_off_caller();
    open(true);
  }
  work_at_loops(*cores_[0]);
  if (is_open()) close();
  loops_ = {};
  return trap_;
}

void HostDevice::work_at_loops(Core& core) {
  size_t at;
  while ((at = next_loop_.fetch_add(1, std::memory_order_relaxed)) < loops_.size()) {
    size_t first_task = 0;
    for (const TurnLoop& before : loops_.first(at)) first_task += before.tasks.size();
    run_loop(core, loops_[at], first_task);
  }
  finish_streams();
}

void HostDevice::run_loop(Core& core, const TurnLoop& loop, size_t first_task) {
  const size_t own = index_of(core);
  CoreRecord* const record = records_.empty() ? nullptr : &records_[own];
  Interruption* const interruption = own == 0 ? interruption_ : nullptr;
  while (!dropped_.load(std::memory_order_relaxed) && loop.turns->begin()) {
    for (size_t task = 0; task < loop.tasks.size(); task++) {
      core.trap = Trap{};
      run_claim(core, record, loop.tasks[task], 0, loop.tasks[task].tiles, -1, false);
      if (core.trap.kind != TrapKind::none) return report(core, first_task + task);
    }
    if (interruption != nullptr && interruption->requested()) drop_claims();
  }
}

Trap HostDevice::run_turns(std::span<const Task> tasks, std::span<const size_t> ends,
                           Turns& turns) {
  if (options_.spin.count() == 0) return Device::run_turns(tasks, ends, turns);  // nobody spins
  if (turn_stages_.size() < ends.size()) turn_stages_.resize(ends.size());
  const std::span stages(turn_stages_.data(), ends.size());
  int64_t most = 1;
  for (size_t i = 0, first = 0; i < stages.size(); first = ends[i++]) {
    stages[i].take(tasks.subspan(first, ends[i] - first));
    stages[i].first_task = first;
    most = std::max(most, stages[i].claims);
  }
  dealt_to_ = std::min(shares_.size(), static_cast<size_t>(most));
  for (Deal& stage : stages) stage.share_out(dealt_to_);
  trap_ = Trap{};
  trapped_.store(false, std::memory_order_relaxed);
  dropped_.store(false, std::memory_order_relaxed);
  resting_.store(false, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  handed_over_ = 0;
  in_turns_ = true;
  const auto shared = std::ranges::count_if(stages, [](const Deal& d) { return d.claims > 1; });
  Sharing sharing(
      shares_.size() > 1 && shared > 0,
      std::chrono::duration<double>(static_cast<double>(shared) * target_.costs.stage_start));
  while (!dropped_.load(std::memory_order_relaxed) && turns.begin()) {
    // What a core used last in a turn, it uses first in the next one.
    upwards_ = !upwards_;
    sharing.begin();
    for (const Deal& stage : stages) {
      if (dropped_.load(std::memory_order_relaxed)) break;
      run_turn_stage(stage, sharing.shares());
    }
    sharing.end();
  }
  if (is_open()) close();
  in_turns_ = false;
  return trap_;
}

void HostDevice::run_turn_stage(const Deal& deal, bool shared) {
  if (deal.claims <= 1) return run_alone(deal);
  if (!shared) {
    if (is_open()) close();
    offer(deal);
    (void)work(*cores_[0], dealt_to_);
    return;
  }
  offer(deal);
  if (!is_open()) {
    placement_.keep_off_caller();
    open(true);
  }
  handed_over_ += deal.claims - work(*cores_[0], dealt_to_);
  await_claims(handed_over_);
}

// Those that other cores are at, once there are no more to take.
void HostDevice::await_claims(int64_t done) {
  for (int spins = 1; done_.load(std::memory_order_acquire) != done; spins++) {
    if (dropped_.load(std::memory_order_relaxed) || spins % kSpinsPerClose == 0) return close();
    relax();
  }
}

// Cores for which there is never a claim would only take the counters of claims out of the caches
// of the others; so would one that looks for claims of others whenever it has none.
void HostDevice::work_in_turns(Core& core) {
  const size_t index = index_of(core);
  if (index >= dealt_to_) return;
  Share& own = shares_[index];
  int spins = 0;
  do {
    const bool looks = ++spins % kSpinsPerLook == 0;
    if (own.is_empty() && !looks) {
      relax();
      continue;
    }
    const Deal* const deal = own.deal.load(std::memory_order_relaxed);
    const bool steals = looks || deal->claims > static_cast<int64_t>(dealt_to_);
    const int64_t taken = work(core, steals ? dealt_to_ : 1);
    if (taken == 0) continue;
    done_.fetch_add(taken, std::memory_order_release);
    spins = 0;
  } while (is_open());
}

}  // namespace dvm
