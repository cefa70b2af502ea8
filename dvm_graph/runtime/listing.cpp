#include "runtime/listing.h"

#include <algorithm>

#include "runtime/plan_dims.h"
#include "runtime/value_sizes.h"
#include "vm/compile.h"
#include "vm/disassemble.h"

namespace dvm {
namespace {

class Lister {
 public:
  Lister(const Model& model, const Dims& dims, const Target& target)
      : model_(model), dims_(dims), target_(target) {
    measure_values(model, dims, infos_);
    for (const ModelValue& value : model.values) names_.push_back(value.name);
  }

  void list(uint32_t index) {
    const KernelCall& call = model_.calls[index];
    const auto& [plan, origin, apart] = model_.kernels[call.kernel];
    if (guard_holds(call, dims_)) {
      if (!has_dims(plan)) return;
      const CompileStatus status =
          compile_plan(plan, plan.name, dims_, infos_.data(), target_, scratch_, compiled_, apart);
      if (!needs_fallback(status)) {
        listing_.emplace_back(plan.name, text());
        return;
      }
    }
    for (const uint32_t fallback : call.fallback) list(fallback);
  }

  std::vector<std::pair<std::string, std::string>> take() { return std::move(listing_); }

 private:
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
  std::vector<ValueInfo> infos_;
  std::vector<std::string> names_;  // of values
  CompilerScratch scratch_;
  CompiledKernel compiled_;
  std::vector<std::pair<std::string, std::string>> listing_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> list_programs(const Model& model, const Dims& dims,
                                                               const Target& target) {
  Lister lister(model, dims, target);
  for (const Step& step : model.steps) {
    const auto* stage = std::get_if<LaunchStage>(&step);
    if (stage == nullptr) continue;
    for (const uint32_t call : stage->calls) lister.list(call);
  }
  return lister.take();
}

}  // namespace dvm
