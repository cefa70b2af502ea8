#include "runtime/schedule.h"

#include <algorithm>

#include "runtime/in_place.h"

namespace dvm {
namespace {

class Scheduler {
 public:
  explicit Scheduler(const Model& model) : model_(model) {
    schedule_.lifetimes.resize(model.values.size());
    schedule_.local.assign(model.values.size(), 0);
    schedule_.dying.resize(model.steps.size());
    uses_.resize(model.values.size());
  }

  Schedule make() && {
    find_segments();
    for (step_ = 0; step_ < model_.steps.size(); step_++) {
      std::visit([this](const auto& step) { visit(step); }, model_.steps[step_]);
    }
    for (const uint32_t value : model_.outputs) {
      uses_[value].elsewhere = true;
      schedule_.lifetimes[value].last = static_cast<int32_t>(model_.steps.size());
    }
    for (uint32_t value = 0; value < model_.values.size(); value++) assign(value);
    for (Segment& segment : schedule_.segments) find_overwritten(segment);
    return std::move(schedule_);
  }

 private:
  // Who touches a value: the fallback calls of one step, or others as well.
  struct Uses {
    int32_t fallback_step = -1;
    bool elsewhere = false;
  };

  void find_segments() {
    Segment segment;
    for (uint32_t i = 0; i < model_.steps.size(); i++) {
      if (std::holds_alternative<DimsWrite>(model_.steps[i])) segment.dims_writes.push_back(i);
      const OuterCall* const call = outer_call(model_.steps[i]);
      if (call == nullptr || !binds(*call) || i + 1 == model_.steps.size()) continue;
      segment.end_step = i + 1;
      schedule_.segments.push_back(segment);
      segment = Segment{i + 1, i + 1, {}, {}, {}, {}};
    }
    segment.end_step = static_cast<uint32_t>(model_.steps.size());
    schedule_.segments.push_back(std::move(segment));
  }

  bool binds(const OuterCall& call) const {
    return std::any_of(model_.bindings.begin(), model_.bindings.end(), [&](const auto& binding) {
      return std::find(call.outputs.begin(), call.outputs.end(), binding.value) !=
             call.outputs.end();
    });
  }

  Segment& segment_of(int32_t step) {
    for (Segment& segment : schedule_.segments) {
      if (step < static_cast<int32_t>(segment.end_step)) return segment;
    }
    return schedule_.segments.back();
  }

  void visit(const LaunchStage& stage) {
    for (const uint32_t call : stage.calls) visit_call(call, false);
  }
  void visit_call(uint32_t index, bool is_fallback) {
    const KernelCall& call = model_.calls[index];
    const KernelPlan& plan = model_.kernels[call.kernel].plan;
    for (const PlanNode& node : plan.nodes) {
      for (const int32_t access : {node.access, node.weights}) {
        if (access < 0) continue;
        const int32_t value = plan.accesses[static_cast<size_t>(access)].value;
        touch(static_cast<uint32_t>(value), node.op == PlanOp::store_, is_fallback);
      }
    }
    for (const uint32_t fallback : call.fallback) visit_call(fallback, true);
  }
  void visit(const OuterCall& call) {
    for (const uint32_t value : call.inputs) touch(value, false, false);
    for (const uint32_t value : call.outputs) touch(value, true, false);
  }
  void visit(const DimsWrite& write) {
    touch(write.value, true, false);
    auto& first = schedule_.lifetimes[write.value].first;
    first = std::min(first, static_cast<int32_t>(segment_of(first).first_step));
  }

  void touch(uint32_t value, bool writes, bool is_fallback) {
    const auto step = static_cast<int32_t>(step_);
    Lifetime& lifetime = schedule_.lifetimes[value];
    if (writes && lifetime.first < 0) lifetime.first = step;
    lifetime.last = std::max(lifetime.last, step);
    Uses& uses = uses_[value];
    const bool same_step = uses.fallback_step < 0 || uses.fallback_step == step;
    if (!is_fallback || !same_step) uses.elsewhere = true;
    uses.fallback_step = step;
  }

  void assign(uint32_t value) {
    const Lifetime& lifetime = schedule_.lifetimes[value];
    const Storage storage = model_.values[value].storage;
    if (lifetime.first < 0) return;
    if (storage == Storage::vendor) {
      const auto last = static_cast<size_t>(lifetime.last);
      if (last < schedule_.dying.size()) schedule_.dying[last].push_back(value);
    } else if (storage == Storage::output) {
      segment_of(lifetime.first).outputs.push_back(value);
    } else if (storage == Storage::arena) {
      schedule_.local[value] = !uses_[value].elsewhere;
      if (!schedule_.local[value]) segment_of(lifetime.first).arena.push_back(value);
    }
  }

  void find_overwritten(Segment& segment) {
    segment.over.assign(segment.arena.size(), -1);
    std::vector<std::vector<uint32_t>> ending(model_.steps.size() + 1);  // entries, by last step
    for (uint32_t i = 0; i < segment.arena.size(); i++) {
      ending[static_cast<size_t>(schedule_.lifetimes[segment.arena[i]].last)].push_back(i);
    }
    for (size_t to = 0; to < segment.arena.size(); to++) {
      const Lifetime& lifetime = schedule_.lifetimes[segment.arena[to]];
      auto& candidates = ending[static_cast<size_t>(lifetime.first)];
      const auto from = std::find_if(candidates.begin(), candidates.end(), [&](uint32_t entry) {
        return may_overwrite_in(segment.arena[entry], segment.arena[to]);
      });
      if (from == candidates.end()) continue;
      segment.over[to] = static_cast<int32_t>(*from);
      candidates.erase(from);
    }
  }

  // One call reads `from` for the last time and writes `to` for the first, at the same points; no
  // other of its stage touches either.
  bool may_overwrite_in(uint32_t from, uint32_t to) const {
    const Lifetime &old = schedule_.lifetimes[from], &fresh = schedule_.lifetimes[to];
    if (old.last != fresh.first || old.first == old.last) return false;
    if (size_of(model_.values[from].dtype) != size_of(model_.values[to].dtype)) return false;
    const auto* stage = std::get_if<LaunchStage>(&model_.steps[static_cast<size_t>(fresh.first)]);
    if (stage == nullptr) return false;
    const auto touched = [&](uint32_t call) {
      return touches(model_, call, from) || touches(model_, call, to);
    };
    const auto call = std::find_if(stage->calls.begin(), stage->calls.end(), touched);
    return call != stage->calls.end() && touches(model_, *call, from) &&
           std::none_of(call + 1, stage->calls.end(), touched) &&
           may_overwrite(model_, *call, from, to);
  }

  const Model& model_;
  Schedule schedule_;
  std::vector<Uses> uses_;
  size_t step_ = 0;
};

}  // namespace

Schedule make_schedule(const Model& model) { return Scheduler(model).make(); }

}  // namespace dvm
