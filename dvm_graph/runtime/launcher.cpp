#include "runtime/launcher.h"

#include <algorithm>
#include <tuple>

#include "runtime/clock.h"
#include "runtime/errors.h"
#include "runtime/plan_dims.h"
#include "runtime/trap_message.h"
#include "runtime/value_sizes.h"
#include "vm/verify.h"

namespace dvm {
namespace {

// A core takes at least this many claims of a large program, for balance.
constexpr int64_t kClaimsPerCore = 64;

int64_t claim_of(const ProgramHeader& header, int cores) {
  const int64_t claim = std::max<int64_t>(header.preferred_claim, 1);
  return claim * std::max<int64_t>(header.tiles / (claim * cores * kClaimsPerCore), 1);
}

// Has the device record for a profile, if there is one, while this lives.
class Recording {
 public:
  Recording(HostDevice& device, Profiler* profiler) : device_(device) {
    if (profiler != nullptr) device_.record(profiler->records());
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() { device_.record({}); }

 private:
  HostDevice& device_;
};

}  // namespace

Launcher::Launcher(const Model& model, const Schedule& schedule, SharedDevice& device)
    : model_(model),
      schedule_(schedule),
      device_(device),
      calls_(model.calls.size()),
      prepared_(model.steps.size()) {}

void Launcher::invalidate(uint32_t first_step, uint32_t end_step) {
  for (uint32_t step = first_step; step < end_step; step++) prepared_[step].ready = false;
}

void Launcher::run(uint32_t first_step, uint32_t end_step, const RunContext& run) {
  const std::lock_guard lock(device_.mutex);
  const Recording recording(device_.device, run.profiler);
  if (first_step < end_step) prepare(first_step, run);
  for (uint32_t step = first_step; step < end_step; step++) {
    launch(step, std::min(step + 1, end_step - 1), run);
  }
}

void Launcher::end_run() {
  if (scratch_.capacity() > 0) scratch_.reserve(largest_scratch_);
  largest_scratch_ = 0;
}

void Launcher::prepare(uint32_t step, const RunContext& run) {
  Prepared& out = prepared_[step];
  const auto* stage = std::get_if<LaunchStage>(&model_.steps[step]);
  if (out.ready || stage == nullptr) return;
  out.launches.clear();
  out.scratch.clear();
  out.scratch_bytes = 0;
  out.fallbacks = 0;
  for (const uint32_t call : stage->calls) {
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
  if (holds && compile(index, run, out)) return;
  if (call.fallback.empty()) {
    throw CompileError("kernel " + model_.kernels[call.kernel].plan.name +
                       (holds ? " does not fit local memory" : " is refused by its guard") +
                       ", and has no fallback");
  }
  out.fallbacks++;
  for (const uint32_t fallback : call.fallback) resolve(fallback, run, out);
}

bool Launcher::compile(uint32_t index, const RunContext& run, Prepared& out) {
  const KernelPlan& plan = model_.kernels[model_.calls[index].kernel].plan;
  if (!run.dims.all_ok()) {
    for (const DimSlot slot : slots_of(plan)) run.dims.at(slot, plan.name);
  }
  CompiledKernel& compiled = calls_[index].compiled;
  const int64_t start = now_ns();
  const CompileStatus status =
      compile_plan(plan, run.dims, run.values, device_.device.target(), compiler_, compiled);
  if (status == CompileStatus::does_not_fit) return false;
  verify_programs(index, run);
  const int64_t elapsed = now_ns() - start;
  run.statistics.compile_ns += elapsed;
  run.statistics.max_compile_ns = std::max(run.statistics.max_compile_ns, elapsed);
  run.statistics.kernels_compiled++;
  if (run.profiler != nullptr) run.profiler->compiled(index, start, elapsed);
  const int32_t first = position_;
  for (uint32_t stage = 0; stage < compiled.stages.size(); stage++) {
    out.launches.push_back({index, stage, position_++});
  }
  request_scratch(index, first, run, out);
  return true;
}

void Launcher::verify_programs(uint32_t index, const RunContext& run) const {
  const CompiledKernel& compiled = calls_[index].compiled;
  for (uint32_t i = 0; i < compiled.program_count; i++) {
    const std::string complaint = verify(compiled.programs[i], run.values, model_.values.size(),
                                         compiled.workspace_bytes, device_.device.target());
    if (complaint.empty()) continue;
    throw CompileError("kernel " + model_.kernels[model_.calls[index].kernel].plan.name +
                       " was compiled to a bad program: " + complaint);
  }
}

// Adds the workspace of a compiled call and the local values it touches to the chain at hand.
void Launcher::request_scratch(uint32_t index, int32_t first, const RunContext& run,
                               Prepared& out) {
  const int32_t last = std::max(first, position_ - 1);
  if (const int64_t bytes = calls_[index].compiled.workspace_bytes; bytes > 0) {
    out.scratch.push_back({-1, index, 0});
    requests_.push_back({bytes, first, last});
  }
  for (const Access& access : model_.kernels[model_.calls[index].kernel].plan.accesses) {
    if (!schedule_.local[static_cast<size_t>(access.value)]) continue;
    const auto begin = out.scratch.begin() + static_cast<ptrdiff_t>(first_request_);
    const auto known = std::find_if(begin, out.scratch.end(), [&](const Scratch& scratch) {
      return scratch.value == access.value;
    });
    if (known == out.scratch.end()) {
      const int64_t bytes = run.values[access.value].bytes;
      if (bytes < 0) throw_bad_size(model_, static_cast<uint32_t>(access.value), run.dims);
      out.scratch.push_back({access.value, index, 0});
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

void Launcher::bind_scratch(const Prepared& prepared, const RunContext& run) {
  if (prepared.scratch.empty()) return;
  scratch_.grow(prepared.scratch_bytes);
  largest_scratch_ = std::max(largest_scratch_, prepared.scratch_bytes);
  for (const Scratch& scratch : prepared.scratch) {
    if (scratch.value >= 0) run.buffers[scratch.value] = scratch_.data() + scratch.offset;
  }
  for (const Scratch& scratch : prepared.scratch) {
    if (scratch.value >= 0) continue;
    std::vector<std::byte*>& buffers = calls_[scratch.call].buffers;
    buffers.resize(model_.values.size() + kReservedBuffers);
    std::byte** table = buffers.data() + kReservedBuffers;
    table[kWorkspace] = scratch_.data() + scratch.offset;
    const KernelPlan& plan = model_.kernels[model_.calls[scratch.call].kernel].plan;
    for (const Access& access : plan.accesses) table[access.value] = run.buffers[access.value];
  }
}

// Starts the launch of a step, prepares the step `next` meanwhile, and sees the launch through.
void Launcher::launch(uint32_t step, uint32_t next, const RunContext& run) {
  const Prepared& prepared = prepared_[step];
  bind_scratch(prepared, run);
  size_t done = collect_tasks(prepared, 0, run);
  device_.device.submit(tasks_);
  try {
    prepare(next, run);
  } catch (...) {
    device_.device.finish();
    throw;
  }
  finish();
  while (done < prepared.launches.size()) {
    done = collect_tasks(prepared, done, run);
    device_.device.submit(tasks_);
    finish();
  }
  run.statistics.fallbacks += prepared.fallbacks;
}

// The tasks of all launches that share a position; returns the index of the first that does not.
size_t Launcher::collect_tasks(const Prepared& prepared, size_t first, const RunContext& run) {
  tasks_.clear();
  size_t index = first;
  for (; index < prepared.launches.size(); index++) {
    const Launch& launch = prepared.launches[index];
    if (launch.position != prepared.launches[first].position) break;
    const Call& call = calls_[launch.call];
    const bool own_buffers = call.compiled.workspace_bytes > 0;
    std::byte* const* buffers = own_buffers ? call.buffers.data() + kReservedBuffers : run.buffers;
    const CompiledKernel::Stage& stage = call.compiled.stages[launch.stage];
    for (uint32_t i = 0; i < stage.program_count; i++) {
      const Program& program = call.compiled.programs[stage.first_program + i];
      const int64_t claim = claim_of(program.header(), device_.device.cores());
      tasks_.push_back({&program, buffers, program.header().tiles, claim, launch.call});
      if (launch.stage > 0 || i > 0) continue;
      run.statistics.kernels_launched++;
      if (run.profiler == nullptr) continue;
      run.profiler->launched(launch.call, call.compiled, run.dims, run.values);
    }
  }
  return index;
}

void Launcher::finish() {
  const Trap trap = device_.device.finish();
  if (trap.kind == TrapKind::none) return;
  const ModelKernel& kernel = model_.kernels[model_.calls[tasks_[trap.task].tag].kernel];
  throw ExecutionError(trap_message(trap, kernel, *tasks_[trap.task].program));
}

}  // namespace dvm
