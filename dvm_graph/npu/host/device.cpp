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

constexpr uint32_t kOpen = 1u << 11;
constexpr uint32_t kInside = kOpen - 1;
constexpr uint32_t kGeneration = 1u << 12;
constexpr int kSpinsPerCheck = 4096;
constexpr size_t kArenaAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

uint32_t generation_of(uint32_t state) { return state & ~(kOpen | kInside); }

// Makes what instructions stored around the caches visible to other cores; see kStream.
void finish_streams() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

int64_t claims_of(const Task& task) {
  return (std::max<int64_t>(task.tiles, 0) + task.claim - 1) / task.claim;
}

}  // namespace

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
  const size_t alignment = bytes >= kHugePage / 4 ? kHugePage : kArenaAlignment;
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
  tasks_.assign(tasks.begin(), tasks.end());
  int64_t claims = 0;
  for (Task& task : tasks_) {
    task.claim = std::max<int64_t>(task.claim, 1);
    claims += claims_of(task);
  }
  trap_ = Trap{};
  trapped_.store(false, std::memory_order_relaxed);
  resting_.store(false, std::memory_order_relaxed);
  placement_.keep_off_caller();
  starts_.reserve((shares_.size() + 1) * tasks_.size());  // finish() cannot fail
  numbers_.reserve(shares_.size() * tasks_.size());
  alone_ = claims == 1;
  if (alone_) return;
  share_out();
  // Opening adds a generation; the low bits are zero here because finish() closed the last stage.
  state_.fetch_add(kGeneration | kOpen, std::memory_order_release);
  if (claims > 1) state_.notify_all();
}

Trap HostDevice::finish() {
  if (std::exchange(alone_, false)) {
    share_out();  // only now: no other core will find it
    work(*cores_[0]);
    return trap_;
  }
  if ((state_.load(std::memory_order_relaxed) & kOpen) == 0) return Trap{};
  work(*cores_[0]);
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int spins = 1; (state_.load(std::memory_order_acquire) & kInside) != 0; spins++) {
    relax();
    if (spins % kSpinsPerCheck == 0)
      options_.spin.count() > 0 ? help_workers() : sleep_until_left();
  }
  return trap_;
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

// Deals out every task to all cores, what is left of one evened out by the next.
void HostDevice::share_out() {
  const auto cores = static_cast<int64_t>(shares_.size());
  const size_t tasks = tasks_.size();
  starts_.assign((shares_.size() + 1) * tasks, 0);
  numbers_.resize(shares_.size() * tasks);
  int64_t number = 0;
  for (int64_t core = 0; core < cores; core++) {
    const auto first = static_cast<uint64_t>(number);
    int64_t* const starts = starts_.data() + static_cast<size_t>(core) * tasks;
    int64_t wanted = 0;  // by the cores up to this one, over their number
    for (size_t task = 0; task < tasks; task++) {
      const int64_t claims = claims_of(tasks_[task]);
      wanted += claims * (core + 1);
      // The caller is there already: it gets what is odd.
      const int64_t end = std::clamp((wanted + cores - 1) / cores, starts[task], claims);
      wanted -= end * cores;
      starts[tasks + task] = end;
      numbers_[static_cast<size_t>(core) * tasks + task] = number;
      number += end - starts[task];
    }
    shares_[static_cast<size_t>(core)].left.store(first | static_cast<uint64_t>(number) << 32,
                                                  std::memory_order_relaxed);
  }
  upwards_ = !upwards_;
}

int64_t HostDevice::take(Share& share, bool from_low) {
  uint64_t left = share.left.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t low = left & UINT32_MAX, high = left >> 32;
    if (low >= high) return -1;
    const uint64_t rest = from_low ? left + 1 : left - (uint64_t{1} << 32);
    if (share.left.compare_exchange_weak(left, rest, std::memory_order_relaxed)) {
      return static_cast<int64_t>(from_low ? low : high - 1);
    }
  }
}

bool HostDevice::has_unclaimed_tiles() const {
  return std::ranges::any_of(shares_, [](const Share& share) {
    const uint64_t left = share.left.load(std::memory_order_relaxed);
    return (left & UINT32_MAX) < left >> 32;
  });
}

void HostDevice::work(Core& core) {
  CoreRecord* const record = records_.empty() ? nullptr : &records_[index_of(core)];
  const size_t own = index_of(core);
  Interruption* const interruption = own == 0 ? interruption_ : nullptr;
  size_t previous = tasks_.size();
  for (size_t other = 0; other < shares_.size(); other++) {
    Share& share = shares_[(own + other) % shares_.size()];
    const bool from_low = upwards_ == (other == 0);
    for (int64_t claim; (claim = take(share, from_low)) >= 0;) {
      const auto next = std::ranges::upper_bound(numbers_, claim);
      const auto part = static_cast<size_t>(next - numbers_.begin()) - 1;
      const size_t index = part % tasks_.size();
      const Task& task = tasks_[index];
      const int64_t begin = (starts_[part] + claim - numbers_[part]) * task.claim;
      const int64_t neighbour = begin + (from_low ? task.claim : -task.claim);
      core.trap = Trap{};
      run_claim(core, record, task, begin, neighbour < task.tiles ? neighbour : -1,
                index == previous);
      if (core.trap.kind != TrapKind::none) report(core, index);
      previous = index;
      if (interruption != nullptr && interruption->requested()) drop_claims();
    }
  }
  finish_streams();
}

void HostDevice::run_claim(Core& core, CoreRecord* record, const Task& task, int64_t begin,
                           int64_t next, bool goes_on) {
  const int64_t end = std::min(begin + task.claim, task.tiles);
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
      work(core);
      inside.store(false, std::memory_order_release);
      state_.fetch_sub(1, std::memory_order_seq_cst);
      if (resting_.load(std::memory_order_seq_cst)) state_.notify_all();
      break;
    }
  }
}

}  // namespace dvm
