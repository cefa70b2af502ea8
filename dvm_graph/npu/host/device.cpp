#include "npu/host/device.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "npu/host/control_groups.h"
#include "npu/host/process.h"
#include "npu/host/relax.h"
#include "vm/interpret.h"

namespace dvm {
namespace {

constexpr int kSpinsPerCheck = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

int64_t claims_of(const Task& task) {
  return (std::max<int64_t>(task.tiles, 0) + task.claim - 1) / task.claim;
}

}  // namespace

void HostDevice::finish_streams() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

int available_cores() {
  cpu_set_t set;
  const bool confined = sched_getaffinity(0, sizeof set, &set) == 0;
  const int cpus =
      confined ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(cpus, cpus_of_control_groups()));
}

void HostDevice::FreeArena::operator()(std::byte* arena) const {
  ::operator delete(arena, alignment);
}

HostDevice::Arena HostDevice::allocate_arena(size_t bytes) {
  // A huge page, where the system grants one, keeps the whole arena in one TLB entry.
  const size_t alignment = bytes >= kHugePage / 4 ? kHugePage : size_t{kAlignment};
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* arena = ::operator new(rounded, std::align_val_t(alignment));
  if (alignment == kHugePage) madvise(arena, rounded, MADV_HUGEPAGE);
  return Arena(static_cast<std::byte*>(arena), {std::align_val_t(alignment)});
}

HostDevice::HostDevice(int cores, const InstructionTable& table, const Target& target,
                       HostDeviceOptions options)
    : table_(table),
      target_(target),
      options_([&] {
        if (options.runner == nullptr) options.runner = &run_tiles;
        return options;
      }()),
      shares_(static_cast<size_t>(std::clamp(cores, 1, static_cast<int>(kInside)))),
      workers_(std::make_unique<std::vector<std::thread>>()),
      placement_(static_cast<int>(shares_.size())),
      process_(process_generation()) {
  cores = static_cast<int>(shares_.size());
  for (int i = 0; i < cores; i++) {
    const size_t local = (static_cast<size_t>(target.local_bytes) + 63) / 64 * 64;
    arenas_.push_back(allocate_arena(local + kScratchBytes));
    auto& core = cores_.emplace_back(std::make_unique<Core>());
    core->local = arenas_.back().get();
    core->scratch = core->local + local;
    core->local_bytes = static_cast<size_t>(target.local_bytes);
    core->splitting = target.splitting;
  }
  try {
    for (int i = 1; i < cores; i++) {
      workers_->emplace_back([this, i] { worker_loop(*cores_[static_cast<size_t>(i)], i == 1); });
      placement_.add(workers_->back());
    }
  } catch (...) {
    stop();
    throw;
  }
}

HostDevice::~HostDevice() {
  if (process_ == process_generation()) {
    stop();
  } else {
    (void)workers_.release();  // threads that are not here: there is nothing to join or to detach
  }
}

void HostDevice::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  state_.fetch_add(kGeneration, std::memory_order_release);
  state_.notify_all();
  for (std::thread& worker : *workers_) worker.join();
}

void HostDevice::wake() {
  placement_.keep_off_caller();
  resting_.store(false, std::memory_order_relaxed);
  state_.fetch_add(kGeneration, std::memory_order_release);
  state_.notify_all();
}

void HostDevice::submit(std::span<const Task> tasks) {
  stage_.take(tasks);
  trap_ = Trap{};
  trapped_.store(false, std::memory_order_relaxed);
  dropped_.store(false, std::memory_order_relaxed);
  resting_.store(false, std::memory_order_relaxed);
  placement_.keep_off_caller();
  dealt_to_ = shares_.size();
  stage_.share_out(dealt_to_);
  upwards_ = !upwards_;
  alone_ = stage_.claims == 1;
  if (alone_) return;
  offer(stage_);
  open(stage_.claims > 1);
}

// Adds a generation; the low bits are zero here because the last stage was closed.
void HostDevice::open(bool wakes) {
  state_.fetch_add(kGeneration | kOpen, std::memory_order_release);
  if (wakes) state_.notify_all();
}

Trap HostDevice::finish() {
  if (std::exchange(alone_, false)) {
    run_alone(stage_);
    return trap_;
  }
  if (!is_open()) return Trap{};
  work(*cores_[0], dealt_to_);
  close();
  return trap_;
}

// No worker is inside afterwards.
void HostDevice::close() {
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int spins = 1; (state_.load(std::memory_order_acquire) & kInside) != 0; spins++) {
    relax();
    if (spins % kSpinsPerCheck == 0)
      options_.spin.count() > 0 ? help_workers() : sleep_until_left();
  }
}

// Lets a worker that was kept from running run here instead of the caller.
void HostDevice::help_workers() {
  size_t core = 1;
  while (core < shares_.size() && !(shares_[core].inside.load(std::memory_order_acquire) &&
                                    placement_.bring_here(core - 1))) {
    core++;
  }
  if (core == shares_.size()) {
    sched_yield();  // to a worker that waits for this very CPU
    return;
  }
  sleep_until_left();  // it is not to spin here afterwards
}

// Sleeps until a worker leaves the stage; those that do so park.
void HostDevice::sleep_until_left() {
  resting_.store(true, std::memory_order_seq_cst);
  const uint32_t state = state_.load(std::memory_order_seq_cst);
  if ((state & kInside) != 0) state_.wait(state, std::memory_order_acquire);
}

void HostDevice::Deal::take(std::span<const Task> given) {
  tasks.assign(given.begin(), given.end());
  claims = 0;
  for (Task& task : tasks) {
    task.claim = std::max<int64_t>(task.claim, 1);
    claims += claims_of(task);
  }
}

// Deals out every task to all cores, what is left of one evened out by the next.
void HostDevice::Deal::share_out(size_t of_cores) {
  const auto cores = static_cast<int64_t>(of_cores);
  const size_t count = tasks.size();
  starts.assign((of_cores + 1) * count, 0);
  numbers.resize(of_cores * count);
  shares.resize(of_cores);
  int64_t number = 0;
  for (int64_t core = 0; core < cores; core++) {
    const auto first = static_cast<uint64_t>(number);
    int64_t* const from = starts.data() + static_cast<size_t>(core) * count;
    int64_t wanted = 0;  // by the cores up to this one, over their number
    for (size_t task = 0; task < count; task++) {
      const int64_t all = claims_of(tasks[task]);
      wanted += all * (core + 1);
      // The caller is there already: it gets what is odd.
      const int64_t end = std::clamp((wanted + cores - 1) / cores, from[task], all);
      wanted -= end * cores;
      from[count + task] = end;
      numbers[static_cast<size_t>(core) * count + task] = number;
      number += end - from[task];
    }
    shares[static_cast<size_t>(core)] = first | static_cast<uint64_t>(number) << 32;
  }
}

// A core that takes a claim finds everything that was written before.
void HostDevice::offer(const Deal& deal) {
  for (size_t core = dealt_to_; core-- > 0;) {  // the caller's is here
    Share& share = shares_[core];
    share.deal.store(&deal, std::memory_order_relaxed);
    share.upwards.store(upwards_, std::memory_order_relaxed);
    share.left.store(deal.shares[core], std::memory_order_release);
  }
}

int64_t HostDevice::take(Share& share, bool from_low) {
  uint64_t left = share.left.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t low = left & UINT32_MAX, high = left >> 32;
    if (low >= high) return -1;
    const uint64_t rest = from_low ? left + 1 : left - (uint64_t{1} << 32);
    if (share.left.compare_exchange_weak(left, rest, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
      return static_cast<int64_t>(from_low ? low : high - 1);
    }
  }
}

bool HostDevice::has_unclaimed_tiles() const {
  return std::ranges::any_of(shares_, [](const Share& share) { return !share.is_empty(); });
}

// The only claim of a stage, which no other core finds.
void HostDevice::run_alone(const Deal& deal) {
  const auto only = std::ranges::find_if(deal.tasks, [](const Task& t) { return t.tiles > 0; });
  if (only == deal.tasks.end()) return;
  Core& core = *cores_[0];
  core.trap = Trap{};
  run_claim(core, records_.empty() ? nullptr : &records_[0], *only, 0, only->claim, -1, false);
  finish_streams();
  if (core.trap.kind == TrapKind::none) return;
  report(core, deal.first_task + static_cast<size_t>(only - deal.tasks.begin()));
}

// Takes claims until there are none left of so many shares, its own first; how many it took.
int64_t HostDevice::work(Core& core, size_t shares) {
  CoreRecord* const record = records_.empty() ? nullptr : &records_[index_of(core)];
  const size_t own = index_of(core);
  Interruption* const interruption = own == 0 ? interruption_ : nullptr;
  size_t previous = SIZE_MAX;
  int64_t taken = 0;
  for (size_t other = 0; other < shares; other++) {
    Share& share = shares_[(own + other) % dealt_to_];
    const bool from_low = share.upwards.load(std::memory_order_relaxed) == (other == 0);
    for (int64_t claim; (claim = take(share, from_low)) >= 0; taken++) {
      const Deal& deal = *share.deal.load(std::memory_order_relaxed);  // until the claim is done
      const auto next = std::ranges::upper_bound(deal.numbers, claim);
      const auto part = static_cast<size_t>(next - deal.numbers.begin()) - 1;
      const size_t index = part % deal.tasks.size();
      const Task& task = deal.tasks[index];
      const int64_t begin = (deal.starts[part] + claim - deal.numbers[part]) * task.claim;
      const int64_t neighbour = begin + (from_low ? task.claim : -task.claim);
      core.trap = Trap{};
      run_claim(core, record, task, begin, task.claim, neighbour < task.tiles ? neighbour : -1,
                index == previous);
      if (core.trap.kind != TrapKind::none) report(core, deal.first_task + index);
      previous = index;
      if (interruption != nullptr && interruption->requested()) drop_claims();
    }
  }
  finish_streams();
  return taken;
}

void HostDevice::run_claim(Core& core, CoreRecord* record, const Task& task, int64_t begin,
                           int64_t tiles, int64_t next, bool goes_on) {
  const int64_t end = std::min(begin + tiles, task.tiles);
  if (record == nullptr) {
    options_.runner(*task.program, table_, core, task.buffers, begin, end, next);
    return;
  }
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
  using std::chrono::nanoseconds;
  try {
    if (!goes_on) record->spans.push_back({task.tag, nanoseconds(now()).count(), 0, 0});
  } catch (const std::bad_alloc&) {
    record->lost = true;
  }
  core.times = &record->times[task.tag];
  options_.runner(*task.program, table_, core, task.buffers, begin, end, next);
  core.times = nullptr;
  if (record->lost) return;
  record->spans.back().end_ns = nanoseconds(now()).count();
  record->spans.back().tiles += end - begin;
}

void HostDevice::report(const Core& core, size_t task) {
  if (trapped_.exchange(true, std::memory_order_relaxed)) return;
  trap_ = core.trap;  // only the first comes here; finish() reads it after every worker has left
  trap_.task = static_cast<uint32_t>(task);
  trap_.core = static_cast<int32_t>(index_of(core));
  drop_claims();
}

void HostDevice::drop_claims() {
  dropped_.store(true, std::memory_order_relaxed);
  for (Share& share : shares_) share.left.store(0, std::memory_order_relaxed);
}

size_t HostDevice::index_of(const Core& core) const {
  const auto is_it = [&](const std::unique_ptr<Core>& other) { return other.get() == &core; };
  return static_cast<size_t>(std::ranges::find_if(cores_, is_it) - cores_.begin());
}

void HostDevice::post(Errand& errand) {
  if (!workers_->empty()) errand_.store(&errand, std::memory_order_release);
}

bool HostDevice::withdraw(Errand& errand) {
  Errand* posted = &errand;
  return errand_.compare_exchange_strong(posted, nullptr, std::memory_order_relaxed);
}

void HostDevice::recall(Errand& errand) {
  if (process_generation() != process_) return;  // no worker came along
  const std::lock_guard lock(errand_mutex_);
  withdraw(errand);
}

void HostDevice::run_errand() {
  const std::lock_guard lock(errand_mutex_);
  Errand* const errand = errand_.exchange(nullptr, std::memory_order_acquire);
  if (errand != nullptr) errand->run();
}

uint32_t HostDevice::await_stage(uint32_t seen, bool runs_errands) {
  using Clock = std::chrono::steady_clock;
  constexpr int kChecksPerClockRead = 64;
  // Reads of the clock further apart: the core was taken away meanwhile, which is no spinning.
  constexpr auto kLongestStep = std::chrono::microseconds(20);
  const auto arrived = [&](uint32_t state) { return generation_of(state) != seen; };
  Clock::duration spun{};
  Clock::time_point last = Clock::now();
  do {
    for (int i = 0; i < kChecksPerClockRead; i++) {
      const uint32_t state = state_.load(std::memory_order_acquire);
      if (arrived(state)) return state;
      if (runs_errands && has_errand()) run_errand();
      relax();
    }
    const Clock::time_point now = Clock::now();
    spun += std::min<Clock::duration>(now - last, kLongestStep);
    last = now;
  } while (spun < options_.spin && !resting_.load(std::memory_order_relaxed));
  if (runs_errands) waiting_.store(false, std::memory_order_relaxed);
  uint32_t state = state_.load(std::memory_order_acquire);
  while (!arrived(state)) {
    state_.wait(state, std::memory_order_acquire);
    state = state_.load(std::memory_order_acquire);
  }
  return state;
}

void HostDevice::worker_loop(Core& core, bool runs_errands) {
  uint32_t seen = 0;
  for (;;) {
    if (runs_errands) waiting_.store(true, std::memory_order_relaxed);
    uint32_t state = await_stage(seen, runs_errands);
    if (stopping_.load(std::memory_order_relaxed)) return;
    seen = generation_of(state);
    if (runs_errands) waiting_.store(false, std::memory_order_relaxed);
    while ((state & kOpen) != 0) {
      if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
      seen = generation_of(state);
      std::atomic<bool>& inside = shares_[index_of(core)].inside;
      inside.store(true, std::memory_order_release);
      if (!loops_.empty())
        work_at_loops(core);
      else
        in_turns_ ? work_in_turns(core) : (void)work(core, dealt_to_);
      inside.store(false, std::memory_order_release);
      state_.fetch_sub(1, std::memory_order_seq_cst);
      if (resting_.load(std::memory_order_seq_cst)) state_.notify_all();
      break;
    }
  }
}

}  // namespace dvm
