#include "vm/cut_product.h"

#include <algorithm>
#include <vector>

#include "kernels/numbers.h"
#include "kernels/order_axes.h"
#include "vm/isa.h"
#include "vm/program.h"
#include "vm/target.h"
#include "vm/workspace.h"

namespace dvm {
namespace {

class Cutter {
 public:
  explicit Cutter(const NormalPlan& plan) : plan_(plan) {}

  bool run(int64_t first, CutProduct& out) {
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
    out.workspace_bytes = first;
    out.has_prologue = a.op != PlanOp::load_ || plan_.accesses[a.access].storage != stored.storage;
    NormalAccess handed;
    if (out.has_prologue) {
      handed = take_workspace(plan_, a.axes, stored.storage, out.workspace_bytes);
      fill_prologue(out.prologue, product.inputs[0], handed);
      end(out.prologue);
      make_rest(out.rest, handed);
    }
    out.prologue_bytes = out.workspace_bytes;
    const NormalAccess sums = take_workspace(plan_, product.axes, DType::f32, out.workspace_bytes);
    make_product(out, handed, sums);
    fill_epilogue(out.epilogue, sums);
    end(out.epilogue);
    return true;
  }

  bool run_chain(CutChain& out) {
    int32_t inner = -1;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const NormalNode& node = plan_.nodes[i];
      if (node.op == PlanOp::patches_) return false;
      if (node.op != PlanOp::matmul_) continue;
      int32_t& found = plan_.is_inner(node) ? inner : product_;
      if (found >= 0) return false;
      found = static_cast<int32_t>(i);
    }
    if (inner < 0 || product_ < 0) return false;
    const int32_t last = last_behind(inner);
    const NormalNode& handed = plan_.nodes[last];
    if (handed.dtype != DType::f32) return false;
    // As between kernels.
    const DType storage = handed.op == PlanOp::narrow_ ? handed.narrow_to : handed.element;
    out.workspace_bytes = 0;
    const NormalAccess place = take_workspace(plan_, handed.axes, storage, out.workspace_bytes);
    begin(out.inner, KernelKind::mix);
    out.inner.m_axis = plan_.m_axis;
    out.inner.n_axis = plan_.k_axis;
    out.inner.k_axis = plan_.inner_k_axis;
    out.inner.extents[plan_.n_axis] = 1;
    out.inner.add_store(copy(out.inner, last), place);
    begin_product(out.rest, KernelKind::mix);
    out.rest.weighed = plan_.weighed;
    out.rest.extents[plan_.inner_k_axis] = 1;
    renumbered_[last] = out.rest.add_load(DType::f32, handed.axes, place);
    copy_stores(out.rest);
    return true;
  }

  bool scale_before(NormalPlan& out) {
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const NormalNode& node = plan_.nodes[i];
      if (node.op != PlanOp::matmul_ || plan_.is_inner(node)) continue;
      if (product_ >= 0) return false;
      product_ = static_cast<int32_t>(i);
    }
    const NormalNode& product = plan_.nodes[product_];
    const int32_t a = product.inputs[0];
    if (product.dtype != DType::f32 || product.narrow_to != DType::f32) return false;
    const std::vector<int32_t> scales = scales_of_rows(plan_.nodes[a].axes);
    if (scales.empty()) return false;
    begin_product(out, plan_.kind);
    out.inner_k_axis = plan_.inner_k_axis;
    out.weighed = plan_.weighed;
    for (int32_t i = 0; i < product_; ++i) copy(out, i);
    renumbered_[product_] = renumbered_[a];
    for (const int32_t scale : scales) out.nodes[copy(out, scale)].axes = plan_.nodes[a].axes;
    NormalNode scaled = product;
    scaled.inputs[0] = renumbered_[scales.back()];
    scaled.inputs[1] = renumbered_[product.inputs[1]];
    renumbered_[scales.back()] = out.add(scaled);
    for (size_t i = 0; i < plan_.nodes.size(); ++i) copy(out, static_cast<int32_t>(i));
    return true;
  }

  bool make_paired_epilogue(NormalPlan& plan) {
    find_product();
    NormalAccess sums;
    sums.value = kWorkspace;
    fill_epilogue(plan, sums);
    keep_axes(plan, plan_.k_axis);
    const uint32_t axes = plan_.nodes[product_].axes;
    return std::ranges::all_of(plan.nodes, [&](const NormalNode& node) {
      const bool access = info_of(node.op).kind == PlanOpKind::access;
      if (access && node.op != PlanOp::load_ && node.op != PlanOp::store_) return false;
      if (info_of(node.op).kind == PlanOpKind::reduce) return false;
      return node.op != PlanOp::store_ || node.axes == axes;
    });
  }

  bool make_paired_prologue(NormalPlan& plan, DType storage) {
    find_product();
    NormalAccess rows;
    rows.value = kWorkspace;
    rows.storage = storage;
    rows.element_bytes = static_cast<int64_t>(size_of(storage));
    const int32_t a = plan_.nodes[product_].inputs[0];
    fill_prologue(plan, a, rows);
    keep_axes(plan, plan_.n_axis);
    const uint32_t both = bit(plan_.m_axis) | bit(plan_.k_axis);
    return (plan_.nodes[a].axes & both) == both &&
           (plan.reduced_axes() & ~bit(plan_.k_axis)) == 0 &&
           std::ranges::none_of(plan.nodes,
                                [](const NormalNode& node) { return node.window >= 0; });
  }

 private:
  void find_product() {
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (plan_.nodes[i].op == PlanOp::matmul_) product_ = static_cast<int32_t>(i);
    }
  }

  // The node that alone follows one, element by element; -1: there is none.
  int32_t next_behind(int32_t node) const {
    int32_t user = -1;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const NormalNode& each = plan_.nodes[i];
      if (std::ranges::find(each.inputs, node) == std::end(each.inputs)) continue;
      if (user >= 0) return -1;
      user = static_cast<int32_t>(i);
    }
    if (user < 0) return -1;
    const NormalNode& next = plan_.nodes[user];
    const bool follows = info_of(next.op).kind == PlanOpKind::map &&
                         next.axes == plan_.nodes[node].axes && next.dtype == DType::f32;
    return follows ? user : -1;
  }

  // The last node behind one that follows it, one after the other, element by element.
  int32_t last_behind(int32_t node) const {
    for (int32_t next; (next = next_behind(node)) >= 0;) node = next;
    return node;
  }

  // Nodes that scale the product's rows one after the other, up to the last that does so by what is
  // folded along k; A varies along these axes.
  std::vector<int32_t> scales_of_rows(uint32_t axes) const {
    std::vector<int32_t> scales;
    size_t folded = 0;
    for (int32_t node = product_, next; (next = next_behind(node)) >= 0; node = next) {
      const NormalNode& scale = plan_.nodes[next];
      const bool zeroes =
          scale.op == PlanOp::select_ && scale.inputs[2] == node && is_zero(scale.inputs[1]);
      if (scale.op != PlanOp::mul_ && !zeroes) break;
      const int32_t by = scale.inputs[0] == node ? scale.inputs[1] : scale.inputs[0];
      if (by == node || (plan_.nodes[by].axes & ~axes) != 0) break;
      scales.push_back(next);
      if (folds_k(by)) folded = scales.size();
    }
    scales.resize(folded);
    return scales;
  }

  bool is_zero(int32_t node) const {
    return plan_.nodes[node].op == PlanOp::fill_ && plan_.nodes[node].immediate == 0;
  }

  // Whether a node rests on something that is folded along k.
  bool folds_k(int32_t index) const {
    const NormalNode& node = plan_.nodes[index];
    if ((node.reduce_axes & bit(plan_.k_axis)) != 0) return true;
    return std::ranges::any_of(node.inputs,
                               [&](int32_t input) { return input >= 0 && folds_k(input); });
  }

  void begin(NormalPlan& plan, KernelKind kind) {
    plan = {};
    plan.kind = kind;
    plan.rank = plan_.rank;
    plan.extents = plan_.extents;
    renumbered_.assign(plan_.nodes.size(), -1);
  }

  // All but one, along which nothing varies.
  void keep_axes(NormalPlan& plan, int but) const {
    plan.extents[but] = 1;
    plan.m_axis = plan_.m_axis;
    plan.n_axis = plan_.n_axis;
    plan.k_axis = plan_.k_axis;
  }

  // A node and all that it needs, once.
  int32_t copy(NormalPlan& plan, int32_t index) {
    if (renumbered_[index] >= 0) return renumbered_[index];
    NormalNode node = plan_.nodes[index];
    for (int32_t& input : node.inputs) {
      if (input >= 0) input = copy(plan, input);
    }
    return renumbered_[index] = plan.add_from(plan_, node);
  }

  static void end(NormalPlan& plan) {
    drop_unused_axes(plan);
    order_axes(plan);
  }

  void fill_prologue(NormalPlan& plan, int32_t a, const NormalAccess& to) {
    begin(plan, KernelKind::vector);
    plan.add_store(copy(plan, a), to);
  }

  void begin_product(NormalPlan& plan, KernelKind kind) {
    begin(plan, kind);
    plan.m_axis = plan_.m_axis;
    plan.n_axis = plan_.n_axis;
    plan.k_axis = plan_.k_axis;
  }

  void make_product(CutProduct& out, const NormalAccess& a, const NormalAccess& to) {
    NormalPlan& plan = out.product;
    begin_product(plan, KernelKind::cube);
    NormalNode product = plan_.nodes[product_];
    const NormalNode& left = plan_.nodes[product.inputs[0]];
    product.inputs[0] =
        out.has_prologue ? plan.add_load(DType::f32, left.axes, a) : copy(plan, product.inputs[0]);
    product.inputs[1] = copy(plan, product.inputs[1]);
    plan.add_store(plan.add(product), to);
  }

  // Everything but what A is computed from.
  void make_rest(NormalPlan& plan, const NormalAccess& a) {
    begin_product(plan, KernelKind::mix);
    const int32_t left = plan_.nodes[product_].inputs[0];
    renumbered_[left] = plan.add_load(DType::f32, plan_.nodes[left].axes, a);
    copy_stores(plan);
  }

  // From the product in the workspace on.
  void fill_epilogue(NormalPlan& plan, const NormalAccess& from) {
    begin(plan, KernelKind::vector);
    renumbered_[product_] = plan.add_load(DType::f32, plan_.nodes[product_].axes, from);
    copy_stores(plan);
  }

  // All of them, and what they need.
  void copy_stores(NormalPlan& plan) {
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (plan_.nodes[i].op == PlanOp::store_) copy(plan, static_cast<int32_t>(i));
    }
  }

  const NormalPlan& plan_;
  int32_t product_ = -1;
  std::vector<int32_t> renumbered_;  // nodes of the plan at hand
};

}  // namespace

bool cut_product(const NormalPlan& plan, int64_t first, CutProduct& out) {
  return Cutter(plan).run(first, out);
}

bool cut_chain(const NormalPlan& plan, CutChain& out) { return Cutter(plan).run_chain(out); }

bool scale_rows_before(const NormalPlan& plan, NormalPlan& out) {
  return Cutter(plan).scale_before(out);
}

bool paired_epilogue(const NormalPlan& plan, NormalPlan& out) {
  return Cutter(plan).make_paired_epilogue(out);
}

bool paired_prologue(const NormalPlan& plan, DType storage, NormalPlan& out) {
  return Cutter(plan).make_paired_prologue(out, storage);
}

}  // namespace dvm
