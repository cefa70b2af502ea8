#include "vm/apart.h"

#include "kernels/numbers.h"
#include "kernels/order_axes.h"
#include "vm/lower.h"
#include "vm/workspace.h"

namespace dvm {
namespace {

class Taker {
 public:
  Taker(const NormalPlan& plan, ApartPlans& out) : plan_(plan), out_(out) {}

  void run() {
    out_.plans.clear();
    out_.workspace_bytes = 0;
    places_.assign(plan_.nodes.size(), {});
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanOp op = plan_.nodes[i].op;
      if (!is_lazy(op) && op != PlanOp::store_) add_plan(i);
    }
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (plan_.nodes[i].op == PlanOp::store_) add_plan(i);
    }
  }

 private:
  void add_plan(size_t index) {
    const NormalNode& node = plan_.nodes[index];
    NormalPlan& plan = out_.plans.emplace_back();
    plan.rank = plan_.rank;
    plan.extents = plan_.extents;
    if (node.op == PlanOp::matmul_) give_roles(node, plan);
    int32_t inputs[3] = {-1, -1, -1};
    for (int k = 0; k < 3; ++k) {
      if (node.inputs[k] >= 0) inputs[k] = add_operand(node.inputs[k], plan);
    }
    const int32_t result = plan.add_from(plan_, node);
    for (int k = 0; k < 3; ++k) plan.nodes[result].inputs[k] = inputs[k];
    if (node.op != PlanOp::store_) hand_over(index, result, plan);
    drop_unused_axes(plan);
    order_axes(plan);
  }

  void give_roles(const NormalNode& product, NormalPlan& plan) const {
    const bool inner = plan_.is_inner(product);
    plan.kind = KernelKind::cube;
    plan.m_axis = plan_.m_axis;
    plan.n_axis = inner ? plan_.k_axis : plan_.n_axis;
    plan.k_axis = inner ? plan_.inner_k_axis : plan_.k_axis;
  }

  // What is read at once, or the workspace where an earlier plan left it.
  int32_t add_operand(int32_t index, NormalPlan& plan) const {
    const NormalNode& node = plan_.nodes[index];
    if (is_lazy(node.op)) return plan.add_from(plan_, node);
    return plan.add_load(node.dtype, node.axes, places_[index]);
  }

  void hand_over(size_t index, int32_t result, NormalPlan& plan) {
    const NormalNode& node = plan_.nodes[index];
    places_[index] = take_workspace(plan_, node.axes, node.dtype, out_.workspace_bytes);
    plan.add_store(result, places_[index]);
  }

  const NormalPlan& plan_;
  ApartPlans& out_;
  std::vector<NormalAccess> places_;  // of what is handed over, by node
};

}  // namespace

void take_apart(const NormalPlan& plan, ApartPlans& out) { Taker(plan, out).run(); }

}  // namespace dvm
