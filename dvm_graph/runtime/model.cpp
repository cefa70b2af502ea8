#include "runtime/model.h"

#include <algorithm>

#include "runtime/errors.h"
#include "runtime/executor.h"
#include "runtime/plan_dims.h"

namespace dvm {
namespace {

class Checker {
 public:
  explicit Checker(const Model& model) : model_(model) {}

  void check() {
    check_dims();
    for (const ModelValue& value : model_.values) check_value(value);
    for (const ModelKernel& kernel : model_.kernels) check_kernel(kernel);
    for (size_t i = 0; i < model_.calls.size(); i++) check_call(model_.calls[i], i);
    for (const Step& step : model_.steps) {
      std::visit([this](const auto& concrete) { check_step(concrete); }, step);
    }
    for (const SymbolBinding& binding : model_.bindings) check_binding(binding);
    for (const DimCheck& check : model_.checks) check_slot(check.condition, check.message);
    for (const uint32_t value : model_.inputs) {
      check_value_index(value, "model input");
      require(model_.values[value].storage == Storage::input, "model input is stored elsewhere");
    }
    for (const uint32_t value : model_.outputs) check_buffer(value, "the caller");
    check_reads_and_writes();
  }

 private:
  static void require(bool holds, const std::string& complaint) {
    if (!holds) throw CompileError("malformed model plan: " + complaint);
  }
  void check_slot(DimSlot slot, const std::string& user) const {
    require(slot >= 0 && static_cast<size_t>(slot) < model_.dims.instructions.size(),
            "no dim slot " + std::to_string(slot) + ", used by " + user);
  }
  void check_value_index(uint32_t value, const std::string& user) const {
    require(value < model_.values.size(),
            "no value " + std::to_string(value) + ", used by " + user);
  }

  // A value that a step or the caller touches.
  void check_buffer(uint32_t value, const std::string& user) const {
    check_value_index(value, user);
    const ModelValue& touched = model_.values[value];
    const bool constant =
        touched.storage == Storage::constant || touched.storage == Storage::panels;
    require(!constant || !touched.contents.absent(),
            touched.name + ", used by " + user + ", is a constant without contents");
  }

  void check_dims() const {
    const auto& instructions = model_.dims.instructions;
    for (size_t i = 0; i < instructions.size(); i++) {
      const auto [op, a, b] = instructions[i];
      if (op == DimOp::constant) continue;
      if (op == DimOp::symbol) {
        require(a >= 0 && static_cast<size_t>(a) < model_.dims.symbols.size(), "unknown symbol");
        continue;
      }
      const auto earlier = [&](int64_t slot) { return slot >= 0 && static_cast<size_t>(slot) < i; };
      require(earlier(a) && earlier(b),
              "dim slot " + std::to_string(i) + " uses a slot that is not before it");
    }
  }

  void check_value(const ModelValue& value) const {
    for (const DimSlot slot : value.shape) check_slot(slot, value.name);
    const bool opaque_place = value.storage == Storage::input || value.storage == Storage::vendor ||
                              value.storage == Storage::constant;
    require(!value.opaque || opaque_place, value.name + " is opaque, but kernels should touch it");
  }

  void check_kernel(const ModelKernel& kernel) const {
    const KernelPlan& plan = kernel.plan;
    check_axes(plan);
    for (const DimSlot slot : slots_of(plan)) check_slot(slot, plan.name);
    for (const Access& access : plan.accesses) {
      require(access.value >= 0, plan.name + " accesses no value");
      check_buffer(static_cast<uint32_t>(access.value), plan.name);
      require(!model_.values[static_cast<size_t>(access.value)].opaque,
              plan.name + " touches an opaque value");
    }
    for (const PlanNode& node : plan.nodes) {
      for (const int32_t access : {node.access, node.weights}) {
        require(access < static_cast<int>(plan.accesses.size()), plan.name + ": no such access");
      }
    }
  }

  void check_axes(const KernelPlan& plan) const {
    const size_t rank = plan.extents.size();
    require(rank <= kMaxDomainRank, plan.name + " has too many axes");
    for (const DimSlot slot : plan.extents) check_slot(slot, plan.name);
    for (const Access& access : plan.accesses) {
      require(access.strides.size() <= rank, plan.name + " has more strides than axes");
    }
    for (const PlanNode& node : plan.nodes) {
      require(node.strides.size() <= rank && (node.axes | node.reduce_axes) >> rank == 0,
              plan.name + " has a node along axes it does not have");
    }
    if (plan.kind == KernelKind::vector) return;
    for (const int axis : {plan.m_axis, plan.n_axis, plan.k_axis}) {
      require(axis >= 0 && static_cast<size_t>(axis) < rank, plan.name + " has no such axis");
    }
    require(plan.inner_k_axis < static_cast<int>(rank), plan.name + " has no such axis");
  }

  // Nothing reads a value that no step writes: it would have no memory. Nothing writes what belongs
  // to the caller, or constants.
  void check_reads_and_writes() const {
    std::vector<bool> written(model_.values.size());
    for (size_t i = 0; i < written.size(); i++) {
      const Storage storage = model_.values[i].storage;
      written[i] = storage != Storage::arena && storage != Storage::output;
    }
    for (const Step& step : model_.steps) {
      if (const auto* write = std::get_if<DimsWrite>(&step)) written[write->value] = true;
    }
    for_each_access([&](const KernelPlan& plan, const PlanNode& node, size_t value) {
      if (node.op != PlanOp::store_) return;
      const Storage storage = model_.values[value].storage;
      require(storage == Storage::arena || storage == Storage::output,
              plan.name + " writes " + model_.values[value].name + ", which is not its to write");
      written[value] = true;
    });
    for_each_access([&](const KernelPlan& plan, const PlanNode& node, size_t value) {
      require(node.op == PlanOp::store_ || written[value],
              plan.name + " reads " + model_.values[value].name + ", which nothing writes");
    });
    const auto require_written = [&](uint32_t value, const char* reader) {
      require(written[value], std::string(reader) + " reads " + model_.values[value].name +
                                  ", which nothing writes");
    };
    for (const Step& step : model_.steps) {
      if (const OuterCall* const call = outer_call(step)) {
        for (const uint32_t value : call->inputs) require_written(value, call->name.c_str());
      }
    }
    for (const uint32_t value : model_.outputs) require_written(value, "the caller");
  }
  // Of the kernels that are launched, and of their fallbacks.
  template <class Visit>
  void for_each_access(Visit visit) const {
    std::vector<bool> seen(model_.calls.size());
    std::vector<uint32_t> pending;
    for (const Step& step : model_.steps) {
      if (const auto* stage = std::get_if<LaunchStage>(&step)) {
        pending.insert(pending.end(), stage->calls.begin(), stage->calls.end());
      }
    }
    while (!pending.empty()) {
      const uint32_t index = pending.back();
      pending.pop_back();
      if (seen[index]) continue;
      seen[index] = true;
      const KernelCall& call = model_.calls[index];
      pending.insert(pending.end(), call.fallback.begin(), call.fallback.end());
      visit_accesses(model_.kernels[call.kernel].plan, visit);
    }
  }
  template <class Visit>
  static void visit_accesses(const KernelPlan& plan, Visit visit) {
    for (const PlanNode& node : plan.nodes) {
      for (const int32_t index : {node.access, node.weights}) {
        if (index < 0) continue;
        const Access& access = plan.accesses[static_cast<size_t>(index)];
        visit(plan, node, static_cast<size_t>(access.value));
      }
    }
  }

  // Fallback calls come before the call they belong to: there are no cycles.
  void check_call(const KernelCall& call, size_t index) const {
    require(call.kernel < model_.kernels.size(), "call of an unknown kernel");
    if (call.guard != kNoSlot) check_slot(call.guard, "a guard");
    for (const uint32_t fallback : call.fallback) {
      require(fallback < index, "fallback call is not before its call");
    }
  }

  void check_step(const LaunchStage& stage) const {
    for (const uint32_t call : stage.calls) {
      require(call < model_.calls.size(), "launch of an unknown call");
    }
  }
  void check_step(const OuterCall& call) const {
    for (const uint32_t value : call.inputs) check_buffer(value, call.name);
    for (const uint32_t value : call.outputs) {
      check_value_index(value, call.name);
      require(model_.values[value].storage == Storage::vendor,
              model_.values[value].name + " comes from a call, but is stored elsewhere");
    }
  }
  void check_step(const ControlCall& call) const {
    check_step(static_cast<const OuterCall&>(call));
    const auto is_input = [&](int32_t index) {
      return index < static_cast<int32_t>(call.inputs.size());
    };
    require(is_input(call.most_turns) && is_input(call.goes_on),
            call.name + " reads no such input");
    if (call.branches) {
      require(!call.inputs.empty(), call.name + " has no condition");
      require(call.bodies.size() == 2, call.name + " has other bodies");
    } else {
      require(call.states + call.collected.size() == call.outputs.size(),
              call.name + " gives other values than it makes");
      require(call.own_inputs() + call.states + call.scanned.size() <= call.inputs.size(),
              call.name + " lacks inputs");
      require(
          call.bodies.size() == 1 + (call.kept > 0) || call.bodies.size() == 2 + (call.kept > 0),
          call.name + " has other bodies");
    }
    const size_t turn_inputs =
        call.branches ? call.inputs.size() - 1
                      : call.inputs.size() - call.own_inputs() + call.told() + call.kept;
    for (size_t i = 0; i < call.bodies.size(); i++) {
      const Body& body = call.bodies[i];
      const Model& inner = body.program->model();
      for (const auto& [symbol, slot] : body.dims) {
        check_slot(slot, call.name);
        require(symbol < inner.dims.symbols.size(), call.name + " gives an unknown symbol");
      }
      const bool prelude = !call.branches && i == call.turn_bodies();
      const size_t given = prelude ? turn_inputs - call.kept - call.captures() : turn_inputs;
      const size_t wanted = prelude ? call.kept : call.outputs.size() + call.said();
      require(inner.inputs.size() == given && inner.outputs.size() == wanted,
              call.name + " has a body of other inputs or outputs");
    }
    if (call.branches) return;
    if (call.strands == kNoSlot) return;
    const Model& body = call.bodies[0].program->model();
    require(!call.counted && call.strands >= 0 &&
                static_cast<size_t>(call.strands) < body.dims.instructions.size(),
            call.name + " has no such strands");
  }
  void check_step(const HostCall& call) const {
    check_step(static_cast<const OuterCall&>(call));
    const auto holds = [](const std::vector<char>& flags, size_t count) {
      return std::count_if(flags.begin(), flags.end(), [](char flag) { return flag != 0; }) ==
             static_cast<ptrdiff_t>(count);
    };
    require(call.function != nullptr, call.name + " is no operator that the host carries out");
    require(holds(call.given, call.inputs.size()) && holds(call.wanted, call.outputs.size()),
            call.name + " has other operands or results than it says");
  }
  void check_step(const DimsWrite& write) const {
    check_value_index(write.value, "a write of dims");
    const ModelValue& value = model_.values[write.value];
    require(value.dtype == DType::i64 &&
                (value.storage == Storage::arena || value.storage == Storage::output),
            value.name + " cannot hold dims");
    for (const DimSlot slot : write.slots) check_slot(slot, value.name);
  }

  void check_binding(const SymbolBinding& binding) const {
    require(binding.symbol < model_.dims.symbols.size(), "binding of an unknown symbol");
    check_value_index(binding.value, "a binding");
    require(binding.axis < model_.values[binding.value].shape.size(), "binding of an unknown axis");
    require(binding.scale != 0, "binding with scale 0");
  }

  const Model& model_;
};

}  // namespace

void check_model(const Model& model) { Checker(model).check(); }

}  // namespace dvm
