#include "vm/cut_product.h"

#include <algorithm>
#include <vector>

#include "kernels/numbers.h"
#include "kernels/order_axes.h"
#include "vm/isa.h"
#include "vm/program.h"
#include "vm/target.h"

namespace dvm {
namespace {

class Cutter {
 public:
  Cutter(const NormalPlan& plan, CutProduct& out) : plan_(plan), out_(out) {}

  bool run() {
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (plan_.nodes[i].op == PlanOp::patches_) return false;
      if (plan_.nodes[i].op != PlanOp::matmul_) continue;
      if (product_ >= 0) return false;
      product_ = static_cast<int32_t>(i);
    }
    if (product_ < 0 || plan_.inner_k_axis >= 0) return false;
    const NormalNode& product = plan_.nodes[product_];
    const NormalNode &a = plan_.nodes[product.inputs[0]], &b = plan_.nodes[product.inputs[1]];
    if (product.dtype != DType::f32 || product.narrow_to != DType::f32 || b.op != PlanOp::load_)
      return false;
    const NormalAccess& stored = plan_.accesses[b.access];
    if (stored.packed_panels || !(dtype_list::ROUNDED >> static_cast<int>(stored.storage) & 1))
      return false;
    out_.workspace_bytes = 0;
    out_.has_prologue = a.op != PlanOp::load_ || plan_.accesses[a.access].storage != stored.storage;
    NormalAccess handed;
    if (out_.has_prologue) {
      handed = workspace(a.axes, stored.storage);
      make_prologue(product.inputs[0], handed);
    }
    out_.prologue_bytes = out_.workspace_bytes;
    const NormalAccess sums = workspace(product.axes, DType::f32);
    make_product(handed, sums);
    make_epilogue(sums);
    return true;
  }

  // For a plan that was cut.
  bool make_pointwise_epilogue() {
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (plan_.nodes[i].op == PlanOp::matmul_) product_ = static_cast<int32_t>(i);
    }
    NormalAccess sums;
    sums.value = kWorkspace;
    fill_epilogue(sums);
    NormalPlan& plan = out_.epilogue;
    plan.extents[plan_.k_axis] = 1;
    plan.m_axis = plan_.m_axis;
    plan.n_axis = plan_.n_axis;
    const uint32_t axes = plan_.nodes[product_].axes;
    return std::ranges::all_of(plan.nodes, [&](const NormalNode& node) {
      const bool access = info_of(node.op).kind == PlanOpKind::access;
      if (access && node.op != PlanOp::load_ && node.op != PlanOp::store_) return false;
      if (info_of(node.op).kind == PlanOpKind::reduce) return false;
      return node.op != PlanOp::store_ || node.axes == axes;
    });
  }

 private:
  NormalAccess workspace(uint32_t axes, DType storage) {
    NormalAccess place;
    place.value = kWorkspace;
    place.storage = storage;
    place.element_bytes = static_cast<int64_t>(size_of(storage));
    place.offset = out_.workspace_bytes / place.element_bytes;
    int64_t volume = 1;
    for (int axis = plan_.rank - 1; axis >= 0; --axis) {
      if (!(axes & bit(axis))) continue;
      place.strides[axis] = volume;
      volume *= plan_.extents[axis];
    }
    out_.workspace_bytes += ceil_div(volume * place.element_bytes, kAlignment) * kAlignment;
    return place;
  }

  void begin(NormalPlan& plan, KernelKind kind) {
    plan = {};
    plan.kind = kind;
    plan.rank = plan_.rank;
    plan.extents = plan_.extents;
    renumbered_.assign(plan_.nodes.size(), -1);
  }

  static int32_t add_access(NormalPlan& plan, const NormalAccess& access) {
    plan.accesses.push_back(access);
    return static_cast<int32_t>(plan.accesses.size()) - 1;
  }

  static int32_t add(NormalPlan& plan, const NormalNode& node) {
    plan.nodes.push_back(node);
    return static_cast<int32_t>(plan.nodes.size()) - 1;
  }

  // A node and all that it needs, once.
  int32_t copy(NormalPlan& plan, int32_t index) {
    if (renumbered_[index] >= 0) return renumbered_[index];
    NormalNode node = plan_.nodes[index];
    for (int32_t& input : node.inputs) {
      if (input >= 0) input = copy(plan, input);
    }
    for (int32_t* access : {&node.access, &node.weights, &node.numbers}) {
      if (*access >= 0) *access = add_access(plan, plan_.accesses[*access]);
    }
    if (node.window >= 0) {
      plan.windows.push_back(plan_.windows[node.window]);
      node.window = static_cast<int32_t>(plan.windows.size()) - 1;
    }
    return renumbered_[index] = add(plan, node);
  }

  static int32_t load(NormalPlan& plan, uint32_t axes, const NormalAccess& from) {
    NormalNode node;
    node.op = PlanOp::load_;
    node.axes = axes;
    node.access = add_access(plan, from);
    return add(plan, node);
  }

  static void store(NormalPlan& plan, int32_t input, const NormalAccess& to) {
    NormalNode node;
    node.op = PlanOp::store_;
    node.axes = plan.nodes[input].axes;
    node.dtype = plan.nodes[input].dtype;
    node.inputs[0] = input;
    node.access = add_access(plan, to);
    add(plan, node);
  }

  static void end(NormalPlan& plan) {
    drop_unused_axes(plan);
    order_axes(plan);
  }

  void make_prologue(int32_t a, const NormalAccess& to) {
    begin(out_.prologue, KernelKind::vector);
    store(out_.prologue, copy(out_.prologue, a), to);
    end(out_.prologue);
  }

  void make_product(const NormalAccess& a, const NormalAccess& to) {
    NormalPlan& plan = out_.product;
    begin(plan, KernelKind::cube);
    plan.m_axis = plan_.m_axis;
    plan.n_axis = plan_.n_axis;
    plan.k_axis = plan_.k_axis;
    NormalNode product = plan_.nodes[product_];
    const NormalNode& left = plan_.nodes[product.inputs[0]];
    product.inputs[0] =
        out_.has_prologue ? load(plan, left.axes, a) : copy(plan, product.inputs[0]);
    product.inputs[1] = copy(plan, product.inputs[1]);
    store(plan, add(plan, product), to);
  }

  // Everything that is stored, from the product in the workspace on.
  void make_epilogue(const NormalAccess& from) {
    fill_epilogue(from);
    end(out_.epilogue);
  }

  void fill_epilogue(const NormalAccess& from) {
    NormalPlan& plan = out_.epilogue;
    begin(plan, KernelKind::vector);
    renumbered_[product_] = load(plan, plan_.nodes[product_].axes, from);
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (plan_.nodes[i].op == PlanOp::store_) copy(plan, static_cast<int32_t>(i));
    }
  }

  const NormalPlan& plan_;
  CutProduct& out_;
  int32_t product_ = -1;
  std::vector<int32_t> renumbered_;  // nodes of the plan at hand
};

}  // namespace

bool cut_product(const NormalPlan& plan, CutProduct& out) { return Cutter(plan, out).run(); }

bool cut_epilogue(const NormalPlan& plan, CutProduct& out) {
  return Cutter(plan, out).make_pointwise_epilogue();
}

}  // namespace dvm
