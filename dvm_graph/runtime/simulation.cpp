#include "runtime/simulation.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include "npu/simulator/footprint.h"
#include "npu/simulator/shares.h"
#include "npu/simulator/stacked_program.h"
#include "runtime/clock.h"
#include "runtime/errors.h"
#include "runtime/kernel_programs.h"
#include "runtime/plan_dims.h"
#include "runtime/value_sizes.h"
#include "runtime/work.h"
#include "vm/product.h"

namespace dvm {
namespace {

const char* name_of(KernelKind kind) {
  constexpr const char* names[] = {"vector", "cube", "mix"};
  return names[static_cast<int>(kind)];
}

// A stage of a call, at its place among the stages of a step.
struct Placed {
  uint32_t call, stage, position;
  bool fallback;
  int64_t compiled = 0;  // kernels that the host compiled to have it
  double compile_seconds = 0;
};

// The table of buffers that a launch is handed: what lies behind the arguments of its programs.
struct Buffers {
  std::vector<int64_t> values;
  std::vector<double> bytes;
  std::vector<char> fresh;
};

struct Workspace {
  int64_t buffer = 0;
  double bytes = 0;
};

// A stage of the launch that is put together.
struct OpenStage {
  SimulatedStage out;
  StackedProgram::Stage stage;
  std::vector<Workspace> workspaces;  // by program
};

class Simulator {
 public:
  Simulator(const Model& model, const Dims& dims, const Target& target, const NpuPart& part,
            const SimulationRequest& request)
      : model_(model),
        dims_(dims),
        part_(part),
        request_(request),
        programs_(model, target),
        cache_(part.memory_l2) {
    measure_values(model, dims, infos_);
  }

  SimulatedModel run() {
    if (!request_.cold_cache) {
      run_steps();
      result_ = {};
      programs_.forget();  // the run before was at other dims
    }
    run_steps();
    return std::move(result_);
  }

 private:
  void run_steps() {
    for (uint32_t step = 0; step < model_.steps.size(); ++step) {
      if (const OuterCall* const call = outer_call(model_.steps[step])) {
        end_launch();
        result_.vendor_calls.push_back(call->name);
      } else if (const auto* stage = std::get_if<LaunchStage>(&model_.steps[step])) {
        if (!stage->follows) end_launch();
        run_step(*stage);
      }
    }
    end_launch();
  }

  void run_step(const LaunchStage& stage) {
    std::vector<Placed> placed;
    for (const uint32_t call : stage.calls) {
      uint32_t position = 0;
      resolve(call, false, position, placed);
    }
    uint32_t last = 0;
    for (const Placed& p : placed) last = std::max(last, p.position + 1);
    for (uint32_t position = 0; position < last; ++position) {
      std::vector<Placed> side_by_side;
      std::copy_if(placed.begin(), placed.end(), std::back_inserter(side_by_side),
                   [&](const Placed& p) { return p.position == position; });
      if (request_.side_by_side) {
        add_stage(side_by_side);
        continue;
      }
      for (const Placed& p : side_by_side) add_stage({p});
    }
  }

  // As the launcher does.
  void resolve(uint32_t index, bool fallback, uint32_t& position, std::vector<Placed>& out) {
    const KernelCall& call = model_.calls[index];
    if (guard_holds(call, dims_)) {
      compile(index);
      if (!needs_fallback(programs_.status(index))) {
        for (uint32_t s = 0; s < programs_.compiled(index).stages.size(); ++s) {
          out.push_back({index, s, position++, fallback, std::exchange(compiled_, 0),
                         std::exchange(compile_seconds_, 0)});
        }
        return;
      }
    }
    if (call.fallback.empty()) {
      throw CompileError("kernel " + programs_.name_of(index) + " does not fit local memory of " +
                         part_.label + ", and has no fallback");
    }
    for (const uint32_t other : call.fallback) resolve(other, true, position, out);
  }

  void compile(uint32_t call) {
    if (programs_.is_current(call, dims_, infos_.data())) return;
    const DistinctKernel& kernel = programs_.table().kernels[programs_.bound(call).kernel];
    const auto require = [&](DimSlot slot) {
      if (dims_.ok(slot)) return;
      throw InputError("kernel " + programs_.name_of(call) +
                       " depends on a dim that is not given: " + model_.dims.text(slot));
    };
    for (const DimSlot slot : kernel.slots) require(slot);
    for (const StrideSlot& slot : kernel.strides) require(slot.stride);
    int64_t least = 0;
    for (int round = 0; round < std::max(request_.compile_repeats, 1); ++round) {
      const int64_t start = now_ns();
      programs_.compile(call, dims_, infos_.data(), scratch_);
      const int64_t elapsed = now_ns() - start;
      least = round == 0 ? elapsed : std::min(least, elapsed);
    }
    ++compiled_;
    if (request_.compile_repeats > 0) compile_seconds_ += static_cast<double>(least) * 1e-9;
  }

  // A stage goes into the launch that is open, or begins one.
  void add_stage(const std::vector<Placed>& calls) {
    int64_t compiled = 0;
    for (const Placed& at : calls) compiled += at.compiled;
    const bool many = request_.launch_kernels > 0 && compiled > 0 &&
                      launch_compiled_ + compiled > request_.launch_kernels;
    if (many || !request_.side_by_side || !request_.stacked) end_launch();
    launch_compiled_ += compiled;
    OpenStage& open = launch_.emplace_back();
    SimulatedStage& out = open.out;
    out.compiled = compiled;
    for (const Placed& at : calls) {
      const uint64_t first_buffer = buffers_.values.size();
      for (const Argument& argument : programs_.bound(at.call).arguments) {
        buffers_.values.push_back(argument.value);
        buffers_.bytes.push_back(static_cast<double>(infos_[argument.value].bytes));
        buffers_.fresh.push_back(model_.values[argument.value].storage == Storage::output);
      }
      const CompiledKernel& kernel = programs_.compiled(at.call);
      const Workspace workspace{-1 - static_cast<int64_t>(at.call),
                                static_cast<double>(kernel.workspace_bytes)};
      describe(at, out);
      out.compile_seconds += at.compile_seconds;
      for (uint32_t p = 0; p < kernel.stages[at.stage].program_count; ++p) {
        const Program& program = kernel.programs[kernel.stages[at.stage].first_program + p];
        open.stage.programs.push_back(&program);
        open.stage.buffers.push_back(first_buffer);
        open.workspaces.push_back(workspace);
        out.kernels.push_back(programs_.name_of(at.call));
        out.kinds.emplace_back(name_of(program.header().kind));
        out.tiles.push_back(program.header().tiles);
        out.lacking.push_back(lacking_of(at.call, program));
      }
    }
  }

  void end_launch() {
    if (launch_.empty()) return;
    SimulatedLaunch& out = result_.launches.emplace_back();
    out.stack_seconds = stack();
    out.words = static_cast<int64_t>(stacked_.words().size());
    out.programs = static_cast<int64_t>(stacked_.different_programs());
    for (size_t s = 0; s < launch_.size(); ++s) {
      run_stage(launch_[s], s);
      out.stages.push_back(std::move(launch_[s].out));
    }
    launch_.clear();
    launch_compiled_ = 0;
    buffers_ = {};
  }

  // Makes the launch one program; the time that it takes, where that is asked for. A kernel alone
  // is not stacked: its cores find their shares themselves.
  double stack() {
    const StackedProgram::Stage& first = launch_[0].stage;
    const bool alone =
        launch_.size() == 1 && first.programs.size() == first.programs[0]->header().programs();
    const int repeats = alone ? 0 : request_.compile_repeats;
    int64_t least = 0;
    for (int round = 0; round < std::max(repeats, 1); ++round) {
      const int64_t start = now_ns();
      stages_.clear();
      dealt_.clear();
      for (OpenStage& open : launch_) {
        open.stage.cores = dealt(open.stage.programs);
        stages_.push_back(open.stage);
      }
      stacked_.assign(stages_);
      const int64_t elapsed = now_ns() - start;
      least = round == 0 ? elapsed : std::min(least, elapsed);
    }
    return repeats > 0 ? static_cast<double>(least) * 1e-9 : 0;
  }

  // Equal layers are dealt out once.
  const std::vector<CoreShares>* dealt(const std::vector<const Program*>& programs) {
    const auto [entry, fresh] = dealt_.try_emplace(programs);
    if (fresh) entry->second = deal_tiles(programs, part_);
    return &entry->second;
  }

  // As the launch's program says.
  void run_stage(OpenStage& open, size_t number) {
    const std::vector<ProgramView> programs = stacked_.programs(number);
    const std::vector<uint64_t> buffers = stacked_.buffers(number);
    const std::vector<CoreShares> cores = stacked_.cores(number);
    std::vector<PlacedProgram> placed;
    for (size_t p = 0; p < programs.size(); ++p) {
      placed.push_back({open.stage.programs[p], std::span(buffers_.values).subspan(buffers[p]),
                        std::span(buffers_.bytes).subspan(buffers[p]),
                        std::span(buffers_.fresh).subspan(buffers[p]), open.workspaces[p].buffer,
                        open.workspaces[p].bytes});
    }
    const std::vector<std::vector<double>> misses = miss_shares(placed, cores, cache_, followed_);
    open.out.timing = timing_of(open.stage.programs, programs, misses, cores);
    describe(open.stage.programs, cores, open.out);
  }

  // Equal layers take the same time: a stage of the same programs, of whose reads the cache answers
  // the same, is simulated once.
  const StageTiming& timing_of(const std::vector<const Program*>& names,
                               const std::vector<ProgramView>& programs,
                               const std::vector<std::vector<double>>& misses,
                               const std::vector<CoreShares>& cores) {
    for (const Known& known : known_) {
      if (known.programs == names && known.misses == misses) return known.timing;
    }
    std::vector<ProgramWork> work;
    work.reserve(programs.size());
    for (size_t i = 0; i < programs.size(); ++i) work.emplace_back(programs[i], part_, misses[i]);
    known_.push_back({names, misses, simulate_stage(work, cores, part_, request_.most_spans)});
    return known_.back().timing;
  }

  // Vector cores are the last ones: the first may go with cube cores.
  void describe(const std::vector<const Program*>& programs, const std::vector<CoreShares>& cores,
                SimulatedStage& out) const {
    for (size_t i = 0; i < cores.size(); ++i) {
      if (cores[i].empty()) continue;
      SimulatedCore& core = out.cores.emplace_back();
      core.cube = programs[cores[i][0].program]->header().on_cube();
      const size_t behind = cores.size() - i;
      core.number =
          static_cast<int64_t>(core.cube ? i : static_cast<size_t>(part_.cores_vector) - behind);
      for (const Share& share : cores[i]) {
        const ProgramHeader& header = programs[share.program]->header();
        for (const GroupRange& range : share.groups) {
          core.parts.push_back(
              {share.program, header.first_tile(range.begin), header.first_tile(range.end)});
        }
      }
    }
  }

  std::string lacking_of(uint32_t call, const Program& program) const {
    if (!program.header().on_cube() || !programs_.compiled(call).one_memory) return {};
    const KernelPlan& plan = model_.kernels[model_.calls[call].kernel].plan;
    const char* lacks = lacking(plan, infos_.data());
    return lacks != nullptr ? lacks : "blocks that fit its memories";
  }

  void describe(const Placed& at, SimulatedStage& out) const {
    const ModelKernel& kernel = model_.kernels[model_.calls[at.call].kernel];
    std::string origin;
    for (const std::string& node : kernel.origin) origin += (origin.empty() ? "" : ", ") + node;
    out.origins.push_back(std::move(origin));
    out.fallback |= at.fallback;
    if (at.stage > 0) return;  // a kernel's work is that of its first stage
    const KernelWork work = work_of(kernel.plan, dims_.values(), infos_.data());
    out.flops += static_cast<double>(work.matmul_flops);
    out.vector_flops += static_cast<double>(work.vector_flops);
    out.bytes += static_cast<double>(work.read_bytes) + static_cast<double>(work.written_bytes);
  }

  const Model& model_;
  const Dims& dims_;
  const NpuPart& part_;
  const SimulationRequest request_;
  KernelPrograms programs_;
  CacheContents cache_;
  FollowedReads followed_;
  CompilerScratch scratch_;
  std::vector<ValueInfo> infos_;
  struct Known {
    std::vector<const Program*> programs;
    std::vector<std::vector<double>> misses;
    StageTiming timing;
  };
  std::deque<Known> known_;
  int64_t compiled_ = 0;
  double compile_seconds_ = 0;
  // The launch that is open, and how many kernels are compiled for it.
  std::vector<OpenStage> launch_;
  Buffers buffers_;
  int64_t launch_compiled_ = 0;
  std::map<std::vector<const Program*>, std::vector<CoreShares>> dealt_;  // of the launch
  std::vector<StackedProgram::Stage> stages_;
  StackedProgram stacked_;
  SimulatedModel result_;
};

}  // namespace

SimulatedModel simulate_model(const Model& model, const Dims& dims, const Target& target,
                              const NpuPart& part, const SimulationRequest& request) {
  return Simulator(model, dims, target, part, request).run();
}

std::vector<std::string> lacking_products(const Model& model) {
  std::vector<ValueInfo> infos;
  for (const ModelValue& value : model.values) infos.push_back({value.dtype, 0});
  std::vector<std::string> found;
  for (const ModelKernel& kernel : model.kernels) {
    if (kernel.plan.weighed) continue;  // its fallback runs
    if (const char* lacks = lacking(kernel.plan, infos.data()))
      found.push_back(kernel.plan.name + ": " + lacks);
  }
  return found;
}

}  // namespace dvm
