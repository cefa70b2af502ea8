#include "runtime/launcher.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/clock.h"
#include "runtime/errors.h"
#include "runtime/plan_dims.h"
#include "runtime/trap_message.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

// What a run wants of the device, while this lives: records for a profile, and to heed who may end
// it.
class Attention {
 public:
  Attention(Device& device, const RunContext& run) : device_(device) {
    if (run.profiler != nullptr) device_.record(run.profiler->records());
    device_.heed(run.request.interruption);
  }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;
  ~Attention() {
    device_.record({});
    device_.heed(nullptr);
  }

 private:
  Device& device_;
};

// Turns keep the device for about so long; then others may have it.
constexpr int64_t kTurnsNs = 10'000'000;
constexpr int kTurnsPerClockRead = 16;

Target target_for(Cores cores, Target target) {
  if (cores == Cores::one) target.cores = 1;
  return target;
}

std::string stage_name(uint32_t step, size_t programs) {
  return "step " + std::to_string(step) + ": " + std::to_string(programs) +
         (programs == 1 ? " program" : " programs");
}

}  // namespace

void refuse_interrupted(const RunRequest& request) {
  if (request.interruption != nullptr && request.interruption->requested()) {
    throw CancelledError("the run was ended before it was done");
  }
}

// Has a worker compile for steps that are not ready, while this lives.
class Launcher::Ahead {
 public:
  Ahead(Launcher& launcher, uint32_t first_step, uint32_t end_step, const RunContext& run)
      : launcher_(launcher), run_(run) {
    if (launcher.alone_) return;
    while (first_step < end_step && launcher.is_ready(first_step)) first_step++;
    uint32_t compiled = first_step;
    while (compiled < end_step && !launcher.compiles(compiled, run)) compiled++;
    if (compiled == end_step) return;
    const int64_t start = now_ns();
    launcher.compiles_ahead_ = launcher.ahead_.begin(first_step, end_step, run.dims, run.values);
    // Else the first kernel's time begins when it was asked for.
    if (!launcher.compiles_ahead_) run.statistics.compile_ns += now_ns() - start;
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;
  ~Ahead() { launcher_.end_ahead(run_); }

 private:
  Launcher& launcher_;
  const RunContext& run_;
};

Launcher::Launcher(const Model& model, const Schedule& schedule, SharedDevice& device, Cores cores,
                   std::span<const char> calls)
    : model_(model),
      schedule_(schedule),
      launched_(calls),
      left_out_(model.calls.size()),
      alone_(cores == Cores::one),
      device_(device),
      target_(target_for(cores, device.device->target())),
      programs_(model, target_),
      ahead_(model, programs_, device.device->standby(), waiting_compiler_, left_out_),
      rehearsal_(*device.device, programs_.table(), waiting_compiler_),
      prepared_(model.steps.size()) {
  size_t entries = 0;
  for (uint32_t call = 0; call < model.calls.size(); call++) {
    first_buffer_.push_back(entries + kReservedBuffers);
    entries += kReservedBuffers + bound(call).arguments.size();
  }
  buffers_.resize(entries);
  news_.reserve(model.calls.size());
}

void Launcher::invalidate(uint32_t first_step, uint32_t end_step) {
  for (uint32_t step = first_step; step < end_step; step++) prepared_[step].ready = false;
}

void Launcher::leave_out(uint32_t call, bool left_out) {
  if ((left_out_[call] != 0) == left_out) return;
  left_out_[call] = left_out ? 1 : 0;
  invalidate(0, static_cast<uint32_t>(prepared_.size()));
}

void Launcher::forget() { programs_.forget(); }

void Launcher::begin_run() {
  news_.clear();
  largest_scratch_ = 0;  // of a run that failed
  if (!std::exchange(shares_, false)) return;
  // Another run that holds the device keeps the cores awake.
  const std::unique_lock lock(device_.mutex, std::try_to_lock);
  if (lock.owns_lock()) device_.device->wake();
}

void Launcher::run(uint32_t first_step, uint32_t end_step, const RunContext& run) {
  const std::lock_guard lock(device_.mutex);
  const Attention attention(*device_.device, run);
  if (device_.device->resting()) device_.device->wake();
  next_ = first_step + 1;
  const Ahead ahead(*this, first_step, end_step, run);
  for (uint32_t step = first_step; step < end_step; step++) {
    if (!is_ready(step)) prepare(step, run);
    launch(step, end_step, run);
  }
}

void Launcher::end_run() {
  if (scratch_.capacity() > 0) scratch_.reserve(largest_scratch_);
}

bool Launcher::is_ready(uint32_t step) const {
  return prepared_[step].ready || !std::holds_alternative<LaunchStage>(model_.steps[step]);
}

// Whether a kernel of the step is to be compiled.
bool Launcher::compiles(uint32_t step, const RunContext& run) const {
  if (is_ready(step)) return false;
  return std::ranges::any_of(std::get<LaunchStage>(model_.steps[step]).calls, [&](uint32_t call) {
    return (launched_.empty() || launched_[call] != 0) && left_out_[call] == 0 &&
           compiles_call(call, run);
  });
}

bool Launcher::compiles_call(uint32_t call, const RunContext& run) const {
  if (guard_holds(model_.calls[call], run.dims)) {
    if (!programs_.is_current(call, run.dims, run.values) && !programs_.has_room(call, run.dims))
      return true;
    if (!needs_fallback(programs_.status(call))) return false;
  }
  return std::ranges::any_of(model_.calls[call].fallback,
                             [&](uint32_t other) { return compiles_call(other, run); });
}

void Launcher::prepare(uint32_t step, const RunContext& run) {
  if (compiles_ahead_) ahead_.await(step);
  Prepared& out = prepared_[step];
  out.launches.clear();
  out.scratch.clear();
  out.scratch_bytes = 0;
  out.fallbacks = 0;
  for (const uint32_t call : std::get<LaunchStage>(model_.steps[step]).calls) {
    if ((!launched_.empty() && launched_[call] == 0) || left_out_[call] != 0) continue;
    position_ = 0;
    first_request_ = out.scratch.size();
    requests_.clear();
    resolve(call, run, out);
    place_scratch(out);
  }
  std::sort(out.launches.begin(), out.launches.end(), [](const Launch& a, const Launch& b) {
    return std::tie(a.position, a.call, a.stage) < std::tie(b.position, b.call, b.stage);
  });
  out.ready = true;
}

void Launcher::resolve(uint32_t index, const RunContext& run, Prepared& out) {
  const KernelCall& call = model_.calls[index];
  const bool holds = guard_holds(call, run.dims);
  if (holds && take_programs(index, run, out)) return;
  if (call.fallback.empty()) {
    throw CompileError("kernel " + programs_.name_of(index) +
                       (holds ? " does not fit local memory" : " is refused by its guard") +
                       ", and has no fallback");
  }
  out.fallbacks++;
  for (const uint32_t fallback : call.fallback) resolve(fallback, run, out);
}

// Adds the programs of a call to the step. False: it does not fit the device.
bool Launcher::take_programs(uint32_t index, const RunContext& run, Prepared& out) {
  if (!programs_.is_current(index, run.dims, run.values)) compile(index, run);
  if (needs_fallback(programs_.status(index))) return false;
  const int32_t first = position_;
  for (uint32_t stage = 0; stage < programs_.compiled(index).stages.size(); stage++) {
    out.launches.push_back({index, stage, position_++});
  }
  request_scratch(index, first, run, out);
  return true;
}

void Launcher::compile(uint32_t index, const RunContext& run) {
  const int64_t start = now_ns();
  if (!programs_.compile(index, run.dims, run.values, compiler_)) return;
  count_compiled(index, start, now_ns() - start, run);
}

void Launcher::count_compiled(uint32_t index, int64_t start_ns, int64_t elapsed_ns,
                              const RunContext& run) noexcept {
  if (news_.size() < news_.capacity()) news_.push_back(model_.calls[index].kernel);
  run.statistics.compile_ns += elapsed_ns;
  run.statistics.max_compile_ns = std::max(run.statistics.max_compile_ns, elapsed_ns);
  run.statistics.kernels_compiled++;
  if (run.profiler != nullptr) run.profiler->compiled(index, start_ns, elapsed_ns);
}

void Launcher::end_ahead(const RunContext& run) noexcept {
  if (!std::exchange(compiles_ahead_, false)) return;
  for (const AheadCompiler::Done& done : ahead_.end()) {
    count_compiled(done.call, done.start_ns, done.elapsed_ns, run);
  }
}

// Adds the workspace of a compiled call and the local values it touches to the chain at hand.
void Launcher::request_scratch(uint32_t index, int32_t first, const RunContext& run,
                               Prepared& out) {
  const int32_t last = std::max(first, position_ - 1);
  if (const int64_t bytes = programs_.compiled(index).workspace_bytes; bytes > 0) {
    out.scratch.push_back({-1, index, 0});
    requests_.push_back({bytes, first, last});
  }
  for (const auto [value, offset] : bound(index).arguments) {
    if (!schedule_.local[value]) continue;
    const auto begin = out.scratch.begin() + static_cast<ptrdiff_t>(first_request_);
    const auto known = std::find_if(begin, out.scratch.end(), [&](const Scratch& scratch) {
      return scratch.value == static_cast<int32_t>(value);
    });
    if (known == out.scratch.end()) {
      const int64_t bytes = run.values[value].bytes;
      if (bytes < 0) throw_bad_size(model_, value, run.dims);
      out.scratch.push_back({static_cast<int32_t>(value), index, 0});
      requests_.push_back({bytes, first, last});
    } else {
      requests_[static_cast<size_t>(known - begin)].last = last;
    }
  }
}

// Chains run side by side, so each has memory of its own.
void Launcher::place_scratch(Prepared& out) {
  if (requests_.empty()) return;
  const int64_t bytes = planner_.plan(requests_);
  for (size_t i = 0; i < requests_.size(); i++) {
    out.scratch[first_request_ + i].offset = out.scratch_bytes + requests_[i].offset;
  }
  if (__builtin_add_overflow(out.scratch_bytes, bytes, &out.scratch_bytes)) {
    throw OutOfMemoryError("the intermediate values of a kernel need more than 2^63 bytes");
  }
}

// Fills in the tables of buffers of all calls of a step.
void Launcher::bind_buffers(const Prepared& prepared, const RunContext& run) {
  if (!prepared.scratch.empty()) scratch_.grow(prepared.scratch_bytes);
  largest_scratch_ = std::max(largest_scratch_, prepared.scratch_bytes);
  for (const Scratch& scratch : prepared.scratch) {
    std::byte* const memory = scratch_.data() + scratch.offset;
    (scratch.value < 0 ? buffers_of(scratch.call)[kWorkspace] : run.buffers[scratch.value]) =
        memory;
  }
  for (const Launch& launch : prepared.launches) {
    if (launch.stage != 0) continue;
    std::byte** table = buffers_of(launch.call);
    for (const Argument& argument : bound(launch.call).arguments) {
      *table++ = run.buffers[argument.value] + argument.begin(run.dims.values(), run.values);
    }
  }
}

// Prepares steps while other cores work on the launch at hand, the next one in any case. Compiled
// in a row, all but the first kernel find the compiler in the caches.
void Launcher::prepare_ahead(uint32_t end_step, const RunContext& run) {
  for (; next_ < end_step; next_++) {
    if (is_ready(next_)) continue;
    if (compiles_ahead_ && !ahead_.has(next_)) break;
    prepare(next_, run);
    if (!device_.device->has_unclaimed_tiles()) break;
  }
}

// Starts the launch of a prepared step, prepares later ones meanwhile, and sees the launch through.
void Launcher::launch(uint32_t step, uint32_t end_step, const RunContext& run) {
  const Prepared& prepared = prepared_[step];
  if (prepared.launches.empty()) return end_launch(step, end_step, run);
  bind_buffers(prepared, run);
  size_t done = 0;
  do {
    const bool first = done == 0;
    tasks_.clear();
    done = collect_tasks(prepared, done, run);
    const int64_t since = run.profiler == nullptr ? 0 : now_ns();
    if (alone_) {
      run_alone();
      refuse_interrupted(run.request);
      if (run.profiler != nullptr)
        run.profiler->did("stage", stage_name(step, tasks_.size()), since);
      continue;
    }
    const OpenStage stage(*device_.device, tasks_);
    if (first) prepare_ahead(end_step, run);
    if (done == prepared.launches.size()) end_launch(step, end_step, run);
    finish(run);
    if (run.profiler != nullptr) run.profiler->did("stage", stage_name(step, tasks_.size()), since);
  } while (done < prepared.launches.size());
  profile_launches(prepared, 1, run);
  run.statistics.fallbacks += prepared.fallbacks;
}

// No other core hears of single claims.
void Launcher::run_alone() {
  for (size_t i = 0; i < tasks_.size(); i++) {
    tasks_[i].claim = std::max<int64_t>(tasks_[i].tiles, 1);
    throw_if_trapped(device_.device->run(std::span(tasks_).subspan(i, 1)).behind(i));
  }
}

// While the last stage of a launch runs.
void Launcher::end_launch(uint32_t step, uint32_t end_step, const RunContext& run) {
  if (step + 1 == end_step) end_ahead(run);
  // A core that finds no more tiles begins while others finish theirs.
  if (step + 1 == model_.steps.size() && !news_.empty()) {
    rehearsal_.ask(news_, run.dims.all(), {run.values, model_.values.size()});
  }
}

// Adds the tasks of all launches that share a position; returns the index of the first that does
// not.
size_t Launcher::collect_tasks(const Prepared& prepared, size_t first, const RunContext& run) {
  size_t index = first;
  for (; index < prepared.launches.size(); index++) {
    const Launch& launch = prepared.launches[index];
    if (launch.position != prepared.launches[first].position) break;
    const CompiledKernel& kernel = programs_.compiled(launch.call);
    const CompiledKernel::Stage& stage = kernel.stages[launch.stage];
    for (uint32_t i = 0; i < stage.program_count; i++) {
      const Program& program = kernel.programs[stage.first_program + i];
      const Task& task = tasks_.emplace_back(
          task_of(program, buffers_of(launch.call), device_.device->cores(), launch.call));
      shares_ |= !alone_ && (tasks_.size() > 1 || task.tiles > task.claim);
      if (launch.stage > 0 || i > 0) continue;
      run.statistics.kernels_launched++;
    }
  }
  return index;
}

void Launcher::profile_launches(const Prepared& prepared, int64_t times, const RunContext& run) {
  if (run.profiler == nullptr) return;
  for (const Launch& launch : prepared.launches) {
    const CompiledKernel& kernel = programs_.compiled(launch.call);
    if (launch.stage != 0 || kernel.stages[0].program_count == 0) continue;
    run.profiler->launched(launch.call, kernel, run.dims, run.values, times);
  }
}

void Launcher::finish(const RunContext& run) {
  throw_if_trapped(device_.device->finish());
  refuse_interrupted(run.request);
}

void Launcher::throw_if_trapped(const Trap& trap) const {
  if (trap.kind == TrapKind::none) return;
  const ModelKernel& kernel = model_.kernels[model_.calls[tasks_[trap.task].tag].kernel];
  throw ExecutionError(trap_message(trap, kernel, *tasks_[trap.task].program));
}

// Turns until there are no more, or somebody else should have the device.
class alignas(kLinePair) Launcher::TurnLaunch final : public Turns {
 public:
  TurnLaunch(Launcher& launcher, std::span<const uint32_t> moving, Turns& turns,
             const RunContext& run)
      : launcher_(launcher),
        turns_(turns),
        run_(run),
        launched_before_(run.statistics.kernels_launched),
        fallbacks_before_(run.statistics.fallbacks) {
    launcher.collect_turn(run);
    launcher.find_moving(moving, run);
  }
  TurnLaunch(const TurnLaunch&) = delete;
  TurnLaunch& operator=(const TurnLaunch&) = delete;

  bool begin() noexcept override {
    if (++count_ % kTurnsPerClockRead == 0 && now_ns() - start_ns_ > kTurnsNs) return false;
    over_ = !turns_.begin();
    if (over_) return false;
    for (const auto& [entry, value, begin] : launcher_.moving_) {
      *entry = run_.buffers[value] + begin;
    }
    return true;
  }
  bool over() const { return over_; }
  // Tells of as many launches as there were turns.
  void count() const {
    const int32_t turns = std::max(count_ - 1, 0);  // one time there was none
    for (const Prepared& one : launcher_.prepared_) launcher_.profile_launches(one, turns, run_);
    RunStatistics& counts = run_.statistics;
    counts.kernels_launched += (counts.kernels_launched - launched_before_) * (turns - 1);
    counts.fallbacks += (counts.fallbacks - fallbacks_before_) * (turns - 1);
  }

 private:
  Launcher& launcher_;
  Turns& turns_;
  const RunContext& run_;
  const int32_t launched_before_, fallbacks_before_;
  const int64_t start_ns_ = now_ns();
  int32_t count_ = 0;
  bool over_ = false;
};

void Launcher::run_turns(std::span<const uint32_t> moving, Turns& turns, const RunContext& run) {
  for (bool over = false; !over;) {
    const std::lock_guard lock(device_.mutex);
    const Attention attention(*device_.device, run);
    if (device_.device->resting()) device_.device->wake();
    TurnLaunch launch(*this, moving, turns, run);
    throw_if_trapped(device_.device->run_turns(tasks_, turn_ends_, launch));
    launch.count();
    over = launch.over() || is_interrupted(run);
  }
}

void Launcher::run_loops(std::span<const Loop> loops) {
  const RunContext& run = loops[0].run;
  SharedDevice& device = loops[0].launcher->device_;
  std::vector<const Loop*> left;
  for (const Loop& loop : loops) left.push_back(&loop);
  while (!left.empty() && !is_interrupted(run)) {
    const std::lock_guard lock(device.mutex);
    const Attention attention(*device.device, run);
    if (device.device->resting()) device.device->wake();
    std::deque<TurnLaunch> launches;
    std::vector<TurnLoop> given;
    for (const Loop* loop : left) {
      launches.emplace_back(*loop->launcher, loop->moving, *loop->turns, loop->run);
      given.push_back({loop->launcher->tasks_, &launches.back()});
    }
    Trap trap = device.device->run_loops(given);
    for (const Loop* loop : left) {
      const std::vector<Task>& tasks = loop->launcher->tasks_;
      if (trap.task < tasks.size()) loop->launcher->throw_if_trapped(trap);
      trap.task -= static_cast<uint32_t>(tasks.size());
    }
    std::vector<const Loop*> again;
    for (size_t i = 0; i < left.size(); i++) {
      launches[i].count();
      if (!launches[i].over()) again.push_back(left[i]);
    }
    left = std::move(again);
  }
}

bool Launcher::is_interrupted(const RunContext& run) {
  return run.request.interruption != nullptr && run.request.interruption->requested();
}

// The tasks of all steps. Scratch memory moves where it grows, so it does so for all of them first.
void Launcher::collect_turn(const RunContext& run) {
  tasks_.clear();
  turn_ends_.clear();
  int64_t scratch_bytes = 0;
  const auto steps = static_cast<uint32_t>(model_.steps.size());
  const auto launches = [&](uint32_t step) {
    return std::holds_alternative<LaunchStage>(model_.steps[step]);
  };
  for (uint32_t step = 0; step < steps; step++) {
    if (!is_ready(step)) prepare(step, run);
    if (launches(step)) scratch_bytes = std::max(scratch_bytes, prepared_[step].scratch_bytes);
  }
  if (scratch_bytes > 0) scratch_.grow(scratch_bytes);
  for (uint32_t step = 0; step < steps; step++) {
    if (!launches(step)) continue;
    const Prepared& prepared = prepared_[step];
    bind_buffers(prepared, run);
    run.statistics.fallbacks += prepared.fallbacks;
    for (size_t done = 0; done < prepared.launches.size();) {
      done = collect_tasks(prepared, done, run);
      turn_ends_.push_back(tasks_.size());
    }
  }
}

void Launcher::find_moving(std::span<const uint32_t> values, const RunContext& run) {
  moving_.clear();
  uint32_t last = UINT32_MAX;
  for (const Task& task : tasks_) {
    if (std::exchange(last, task.tag) == task.tag) continue;  // programs of a stage of one call
    const std::vector<Argument>& arguments = bound(task.tag).arguments;
    for (size_t i = 0; i < arguments.size(); i++) {
      const uint32_t value = arguments[i].value;
      if (std::ranges::find(values, value) == values.end()) continue;
      const int64_t begin = arguments[i].begin(run.dims.values(), run.values);
      moving_.push_back({buffers_of(task.tag) + i, value, begin});
    }
  }
}

}  // namespace dvm
