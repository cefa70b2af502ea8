#include "kernels/plan.h"

#include <stdexcept>

namespace dvm {
namespace {

constexpr const char* kNames[] = {
#define DVM_PLAN_OP(name, kind, arity) #name,
#include "kernels/ops.def"
#undef DVM_PLAN_OP
};

}  // namespace

const char* name_of(PlanOp op) { return kNames[static_cast<int>(op)]; }

PlanOp plan_op_from_name(const std::string& name) {
  for (int op = 0; op < static_cast<int>(PlanOp::count_); ++op) {
    if (name == kNames[op]) return static_cast<PlanOp>(op);
  }
  throw std::invalid_argument("unknown kernel plan operator '" + name + "'");
}

}  // namespace dvm
