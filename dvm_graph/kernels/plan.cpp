#include "kernels/plan.h"

#include <stdexcept>

namespace dvm {
namespace {

constexpr PlanOpInfo kPlanOps[] = {
#define DVM_PLAN_OP(name, kind, arity) {#name, PlanOpKind::kind, arity},
#include "kernels/ops.def"
#undef DVM_PLAN_OP
};

}  // namespace

const PlanOpInfo& info_of(PlanOp op) { return kPlanOps[static_cast<int>(op)]; }

PlanOp plan_op_from_name(const std::string& name) {
  for (int op = 0; op < static_cast<int>(PlanOp::count_); ++op) {
    if (name == kPlanOps[op].name) return static_cast<PlanOp>(op);
  }
  throw std::invalid_argument("unknown kernel plan operator '" + name + "'");
}

}  // namespace dvm
