#include "runtime/profile.h"

#include <algorithm>
#include <new>
#include <utility>

#include "runtime/clock.h"
#include "vm/instruction_times.h"
#include "vm/ticks.h"

namespace dvm {
namespace {

constexpr const char* kKinds[] = {"vector", "cube", "mix"};
constexpr const char* kUnits[] = {"scalar", "vector", "cube", "dma"};

// "v_sub+v_exp+v_reduce_sum"
std::string names_of(std::span<const Family> families) {
  std::string names;
  for (const Family family : families) {
    if (!names.empty()) names += '+';
    names += name_of(family);
  }
  return names;
}

// Joined instructions are the vector unit's, but for the loads and stores among them.
int unit_of(std::span<const Family> families) {
  for (const Family family : families) {
    const Unit unit = unit_of(info_of(family).queue);
    if (unit != Unit::dma) return static_cast<int>(unit);
  }
  return static_cast<int>(Unit::dma);
}

}  // namespace

Profiler::Profiler(const Model& model, int cores, int64_t start_ns)
    : model_(model),
      start_ns_(start_ns),
      start_ticks_(ticks()),
      records_(static_cast<size_t>(cores)),
      fallback_(model.calls.size()),
      kernels_(model.calls.size(), -1),
      compilations_(model.calls.size()) {
  for (CoreRecord& record : records_) record.times.resize(model.calls.size());
  for (const KernelCall& call : model.calls) {
    for (const uint32_t fallback : call.fallback) fallback_[fallback] = true;
  }
}

void Profiler::compiled(uint32_t call, int64_t start_ns, int64_t elapsed_ns) noexcept {
  compilations_[call] = {start_ns - start_ns_, elapsed_ns};
}

void Profiler::launched(uint32_t call, const CompiledKernel& compiled, const Dims& dims,
                        const ValueInfo* values, int64_t times) {
  const ModelKernel& described = model_.kernels[model_.calls[call].kernel];
  if (kernels_[call] < 0) {
    kernels_[call] = static_cast<int32_t>(profile_.kernels.size());
    KernelProfile& kernel = profile_.kernels.emplace_back();
    kernel.name = described.plan.name;
    kernel.kind = kKinds[static_cast<int>(described.plan.kind)];
    kernel.origin = described.origin;
    kernel.fallback = fallback_[call];
  }
  KernelProfile& kernel = profile_.kernels[static_cast<size_t>(kernels_[call])];
  kernel.launches += times;
  kernel.programs += times * compiled.program_count;
  for (uint32_t i = 0; i < compiled.program_count; i++) {
    kernel.tiles += times * compiled.programs[i].header().tiles;
  }
  kernel.work.add(work_of(described.plan, dims.values(), values), times);
}

uint32_t Profiler::included(const KernelProfile& kernel, std::string name) {
  const auto [place, fresh] =
      included_.try_emplace(std::move(name), static_cast<uint32_t>(profile_.kernels.size()));
  if (fresh) {
    profile_.kernels.push_back(kernel);
    profile_.kernels.back().name = place->first;
    return place->second;
  }
  KernelProfile& known = profile_.kernels[place->second];
  known.launches += kernel.launches;
  known.programs += kernel.programs;
  known.tiles += kernel.tiles;
  known.work.add(kernel.work);
  for (const InstructionProfile& one : kernel.instructions) {
    const auto same =
        std::ranges::find(known.instructions, one.family, &InstructionProfile::family);
    if (same == known.instructions.end()) {
      known.instructions.push_back(one);
    } else {
      same->count += one.count;
      same->ns += one.ns;
    }
  }
  return place->second;
}

void Profiler::include(const RunProfile& body, int64_t start_ns, const std::string& within) {
  const int64_t after = start_ns - start_ns_;
  std::vector<uint32_t> known;
  for (const KernelProfile& kernel : body.kernels) {
    known.push_back(included(kernel, within + kernel.name));
  }
  for (const KernelSpan& span : body.spans) {
    profile_.spans.push_back(
        {span.core, known[span.kernel], span.start_ns + after, span.end_ns + after, span.tiles});
  }
  for (const CompileSpan& span : body.compilations) {
    profile_.compilations.push_back(
        {known[span.kernel], span.start_ns + after, span.end_ns + after});
  }
  for (const HostSpan& span : body.host) {
    profile_.host.push_back(
        {span.category, within + span.name, span.start_ns + after, span.end_ns + after});
  }
}

void Profiler::did(std::string category, std::string name, int64_t start_ns) {
  profile_.host.push_back(
      {std::move(category), std::move(name), start_ns - start_ns_, now_ns() - start_ns_});
}

RunProfile Profiler::finish() {
  profile_.run_ns = now_ns() - start_ns_;
  const auto elapsed = static_cast<double>(ticks() - start_ticks_);
  const double ns_per_tick = static_cast<double>(profile_.run_ns) / std::max(elapsed, 1.0);
  for (uint32_t call = 0; call < kernels_.size(); call++) {
    if (kernels_[call] < 0) continue;
    add_instructions(call, ns_per_tick, profile_.kernels[static_cast<size_t>(kernels_[call])]);
    const Compilation& compiled = compilations_[call];
    if (compiled.elapsed_ns == 0) continue;  // programs made earlier served
    profile_.compilations.push_back({static_cast<uint32_t>(kernels_[call]), compiled.start_ns,
                                     compiled.start_ns + compiled.elapsed_ns});
  }
  for (size_t core = 0; core < records_.size(); core++) {
    if (records_[core].lost) throw std::bad_alloc();
    for (const CoreSpan& span : records_[core].spans) {
      profile_.spans.push_back({static_cast<int32_t>(core),
                                static_cast<uint32_t>(kernels_[span.tag]),
                                span.start_ns - start_ns_, span.end_ns - start_ns_, span.tiles});
    }
  }
  return std::move(profile_);
}

void Profiler::add_instructions(uint32_t call, double ns_per_tick, KernelProfile& kernel) const {
  const auto nanoseconds = [&](uint64_t count) {
    return static_cast<int64_t>(static_cast<double>(count) * ns_per_tick);
  };
  uint64_t scalar = 0;
  for (const CoreRecord& record : records_) scalar += record.times[call].scalar_ticks;
  kernel.instructions.push_back({"tiles", "scalar", kernel.tiles, nanoseconds(scalar)});
  for (int family = 0; family < kFamilies; family++) {
    uint64_t spent = 0, count = 0;
    for (const CoreRecord& record : records_) {
      spent += record.times[call].ticks[family];
      count += record.times[call].count[family];
    }
    if (count == 0) continue;
    const auto known = static_cast<Family>(family);
    kernel.instructions.push_back({name_of(known),
                                   kUnits[static_cast<int>(unit_of(info_of(known).queue))],
                                   static_cast<int64_t>(count), nanoseconds(spent)});
  }
  for (const CoreRecord& record : records_) {
    const InstructionTimes& times = record.times[call];
    for (int i = 0; i < times.group_count; i++) {
      const InstructionTimes::Group& group = times.groups[i];
      kernel.instructions.push_back({names_of(group.members()), kUnits[unit_of(group.members())],
                                     static_cast<int64_t>(group.count), nanoseconds(group.ticks)});
    }
  }
}

}  // namespace dvm
