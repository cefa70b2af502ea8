#include "runtime/listing.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/executor.h"
#include "runtime/plan_dims.h"
#include "runtime/value_sizes.h"
#include "vm/compile.h"
#include "vm/disassemble.h"
#include "vm/tile_text.h"

namespace dvm {
namespace {

class Lister {
 public:
  Lister(const Model& model, const Dims& dims, const Target& target, bool steps,
         const std::string& within)
      : model_(model), dims_(dims), target_(target), within_(within) {
    measure_values(model, dims, infos_);
    for (const ModelValue& value : model.values) names_.push_back(value.name);
    if (!steps) return;
    scratch_.observe([this](const char* step, const TileCode& code) {
      std::string text = print_tile_code(code, names_);
      steps_ += std::string("after ") + step + ": " + (text == last_step_ ? "the same\n" : text);
      last_step_ = std::move(text);
    });
  }

  void list(uint32_t index, const std::string& why = "") {
    const KernelCall& call = model_.calls[index];
    const auto& [plan, origin, apart] = model_.kernels[call.kernel];
    const std::string reason = guard_holds(call, dims_) ? list_own(plan, apart, why) : guard(call);
    if (reason.empty()) return;
    const std::string instead = "in place of " + plan.name + ", " + reason;
    for (const uint32_t fallback : call.fallback) {
      list(fallback, why.empty() ? instead : why + "; " + instead);
    }
  }

  std::vector<Listing> take() { return std::exchange(listing_, {}); }

 private:
  // Lists the kernel, or says why its fallback runs.
  std::string list_own(const KernelPlan& plan, Apart apart, const std::string& why) {
    if (!has_dims(plan)) return "";
    // Whole, where that is possible, to know whether it had to be taken apart.
    const Apart first = apart == Apart::if_needed ? Apart::never : apart;
    CompileStatus status = compile(plan, first);
    std::string form =
        apart == Apart::always ? "operator by operator, by the option fallbacks" : "";
    if (status == CompileStatus::does_not_fit && first != apart) {
      status = compile(plan, apart);
      form = "operator by operator, as it does not fit local memory otherwise";
    }
    if (status == CompileStatus::does_not_fit) return "which does not fit local memory";
    if (needs_fallback(status)) return "which is predicted to take longer";
    listing_.push_back({within_ + plan.name, text(),
                        why.empty() || form.empty() ? why + form : why + "; " + form, steps_});
    return "";
  }

  CompileStatus compile(const KernelPlan& plan, Apart apart) {
    steps_.clear();
    last_step_.clear();
    return compile_plan(plan, plan.name, dims_, infos_.data(), target_, scratch_, compiled_, apart);
  }

  std::string guard(const KernelCall& call) const {
    return dims_.ok(call.guard) ? "whose guard does not hold" : "whose guard needs dims not given";
  }

  bool has_dims(const KernelPlan& plan) const {
    const std::vector<DimSlot> slots = slots_of(plan);
    return std::all_of(slots.begin(), slots.end(), [&](DimSlot slot) { return dims_.ok(slot); });
  }

  std::string text() const {
    std::string text;
    for (uint32_t i = 0; i < compiled_.program_count; i++) {
      text += disassemble(compiled_.programs[i], names_);
    }
    return text;
  }

  const Model& model_;
  const Dims& dims_;
  const Target& target_;
  const std::string& within_;  // what stands before names of kernels
  std::vector<ValueInfo> infos_;
  std::vector<std::string> names_;  // of values
  CompilerScratch scratch_;
  CompiledKernel compiled_;
  std::vector<Listing> listing_;
  std::string steps_, last_step_;  // of the kernel at hand
};

// The slots of the shape of what a turn gives an input of its body; none: a number, its turn, or
// what the prelude made.
std::span<const DimSlot> shape_of_operand(const Model& model, const ControlCall& control,
                                          size_t input) {
  if (input < control.told()) return {};
  const size_t operand = input - control.told();
  if (control.own_inputs() + operand >= control.inputs.size()) return {};
  const ModelValue& value = model.values[control.inputs[control.own_inputs() + operand]];
  const bool scanned =
      operand >= control.states && operand - control.states < control.scanned.size();
  return std::span(value.shape).subspan(scanned ? 1 : 0);
}

// The dims of a body as far as those around it tell them.
Dims dims_inside(const Model& model, const ControlCall& control, const Body& body,
                 const Dims& around) {
  const Model& inside = body.program->model();
  Dims dims(inside.dims);
  for (const auto& [symbol, slot] : body.dims) {
    if (around.ok(slot)) dims.bind(static_cast<int>(symbol), around.values()[slot]);
  }
  for (const SymbolBinding& binding : inside.bindings) {
    const auto found = std::ranges::find(inside.inputs, binding.value) - inside.inputs.begin();
    const auto input = static_cast<size_t>(found);
    if (control.branches || input == inside.inputs.size()) continue;
    const bool prelude =
        &body - control.bodies.data() == std::ssize(control.bodies) - 1 && control.kept > 0;
    const auto shape = shape_of_operand(model, control, input + (prelude ? control.captures() : 0));
    if (binding.axis >= shape.size() || !around.ok(shape[binding.axis])) continue;
    const int64_t extent = around.values()[shape[binding.axis]] - binding.shift;
    if (extent % binding.scale == 0) {
      dims.bind(static_cast<int>(binding.symbol), extent / binding.scale);
    }
  }
  dims.evaluate();
  return dims;
}

void list_steps(const Model& model, const Dims& dims, const Target& target, bool steps,
                const std::string& within, std::vector<Listing>& listing) {
  Lister lister(model, dims, target, steps, within);
  for (const Step& step : model.steps) {
    if (const auto* stage = std::get_if<LaunchStage>(&step)) {
      for (const uint32_t call : stage->calls) lister.list(call);
    }
    const auto* control = std::get_if<ControlCall>(&step);
    if (control == nullptr) continue;
    for (Listing& found : lister.take()) listing.push_back(std::move(found));
    for (size_t i = 0; i < control->bodies.size(); i++) {
      const Body& body = control->bodies[i];
      const std::string inside = within + control->inside(i);
      list_steps(body.program->model(), dims_inside(model, *control, body, dims), target, steps,
                 inside, listing);
    }
  }
  for (Listing& found : lister.take()) listing.push_back(std::move(found));
}

}  // namespace

std::vector<Listing> list_programs(const Model& model, const Dims& dims, const Target& target,
                                   bool steps) {
  std::vector<Listing> listing;
  list_steps(model, dims, target, steps, "", listing);
  return listing;
}

}  // namespace dvm
