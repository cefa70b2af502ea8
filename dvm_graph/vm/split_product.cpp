#include "vm/split_product.h"

#include <algorithm>

#include "kernels/numbers.h"
#include "vm/workspace.h"

namespace dvm {
namespace {

constexpr int kPieceAxis = 0;  // of the plans that are made; all others move up by one

class Splitter {
 public:
  Splitter(const NormalPlan& plan, int64_t depth, int64_t before, SplitProduct& out)
      : plan_(plan), out_(out), depth_(depth), before_(before), k_(plan.extents[plan.k_axis]) {
    const auto is_product = [](const NormalNode& node) { return node.op == PlanOp::matmul_; };
    product_ = static_cast<int32_t>(std::find_if(plan.nodes.begin(), plan.nodes.end(), is_product) -
                                    plan.nodes.begin());
  }

  void build() {
    const int64_t whole = k_ / depth_, rest = k_ % depth_;
    const int64_t pieces = whole + (rest > 0 ? 1 : 0);
    out_.workspace_bytes = before_;
    workspace_ = shifted(
        take_workspace(plan_, product().axes, product().dtype, out_.workspace_bytes, pieces));
    workspace_.strides[kPieceAxis] = plan_.elements(product().axes);
    build_partial(out_.partial, whole, depth_, 0);
    out_.has_rest = rest > 0;
    if (out_.has_rest) build_partial(out_.rest, 1, rest, whole);
    build_join(pieces);
  }

 private:
  const NormalNode& product() const { return plan_.nodes[product_]; }

  void start(NormalPlan& plan, KernelKind kind, int64_t pieces, int64_t k) const {
    plan.kind = kind;
    plan.weighed = false;
    plan.rank = plan_.rank + 1;
    plan.extents[kPieceAxis] = pieces;
    for (int axis = 0; axis < plan_.rank; ++axis) plan.extents[axis + 1] = plan_.extents[axis];
    plan.extents[plan_.k_axis + 1] = k;
    plan.m_axis = plan.n_axis = plan.k_axis = plan.inner_k_axis = plan.piece_axis = -1;
    plan.nodes.clear();
    plan.accesses.clear();
    plan.windows.clear();
  }

  static NormalNode shifted(NormalNode node) {
    node.axes <<= 1;
    node.reduce_axes <<= 1;
    return node;
  }

  NormalAccess shifted(NormalAccess access) const {
    const auto begin = access.strides.begin();
    std::copy_backward(begin, begin + plan_.rank, begin + plan_.rank + 1);
    access.strides[kPieceAxis] = 0;
    return access;
  }

  // The products of `pieces` pieces of k from piece `first` on.
  void build_partial(NormalPlan& plan, int64_t pieces, int64_t k, int64_t first) const {
    start(plan, KernelKind::cube, pieces, k);
    plan.m_axis = plan_.m_axis + 1;
    plan.n_axis = plan_.n_axis + 1;
    plan.k_axis = plan_.k_axis + 1;
    plan.piece_axis = kPieceAxis;
    NormalNode product = shifted(this->product());
    for (int i = 0; i < 2; ++i) {
      product.inputs[i] = load_piece(plan, product.inputs[i], first);
    }
    product.axes |= bit(kPieceAxis);
    NormalAccess place = workspace_;
    place.offset += first * workspace_.strides[kPieceAxis];
    plan.add_store(plan.add(product), place);
  }

  int32_t load_piece(NormalPlan& plan, int32_t operand, int64_t first) const {
    NormalNode load = shifted(plan_.nodes[operand]);
    load.axes |= bit(kPieceAxis);
    NormalAccess access = shifted(plan_.accesses[load.access]);
    const int64_t step = depth_ * access.strides[plan_.k_axis + 1];
    access.strides[kPieceAxis] = step;
    if (access.packed_panels) {
      access.panel_k = k_;
      access.panel_first = first * depth_;
    } else {
      access.offset += first * step;
    }
    load.access = plan.add(access);
    return plan.add(load);
  }

  // The product becomes a sum over its pieces; what only it was computed from is left out.
  void build_join(int64_t pieces) {
    NormalPlan& join = out_.join;
    start(join, KernelKind::vector, pieces, 1);
    --join.rank;  // nothing varies along k, the last axis
    join.windows = plan_.windows;
    out_.renumber.assign(plan_.nodes.size(), -1);
    mark_joined();
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (out_.renumber[i] < 0) continue;
      NormalNode node = shifted(plan_.nodes[i]);
      if (static_cast<int32_t>(i) == product_) {
        out_.renumber[i] = add_sum(join);
        continue;
      }
      for (int32_t& input : node.inputs) input = input < 0 ? -1 : out_.renumber[input];
      for (int32_t* access : {&node.access, &node.weights, &node.numbers}) {
        if (*access >= 0) *access = join.add(shifted(plan_.accesses[*access]));
      }
      out_.renumber[i] = join.add(node);
    }
  }

  void mark_joined() {
    for (size_t i = plan_.nodes.size(); i-- > 0;) {
      if (plan_.nodes[i].op == PlanOp::store_) out_.renumber[i] = 0;
      if (out_.renumber[i] < 0 || static_cast<int32_t>(i) == product_) continue;
      for (const int32_t input : plan_.nodes[i].inputs) {
        if (input >= 0) out_.renumber[input] = 0;
      }
    }
  }

  int32_t add_sum(NormalPlan& join) const {
    const uint32_t axes = product().axes << 1;
    NormalNode sum;
    sum.op = PlanOp::reduce_sum_;
    sum.dtype = product().dtype;
    sum.axes = axes;
    sum.reduce_axes = bit(kPieceAxis);
    sum.inputs[0] = join.add_load(product().dtype, axes | bit(kPieceAxis), workspace_);
    return join.add(sum);
  }

  const NormalPlan& plan_;
  SplitProduct& out_;
  const int64_t depth_, before_, k_;
  int32_t product_ = -1;
  NormalAccess workspace_;
};

}  // namespace

bool split_product(const CubeProblem& problem, SplitProduct& out) {
  const NormalPlan& plan = problem.plan();
  if (plan.rank >= kMaxDomainRank || plan.k_axis + 1 != plan.rank) return false;
  const int64_t depth = problem.piece();
  if (depth == 0) return false;
  Splitter(plan, depth, 0, out).build();
  return true;
}

bool split_product(const NormalPlan& product, int64_t depth, int64_t before, SplitProduct& out) {
  if (product.rank >= kMaxDomainRank || product.k_axis + 1 != product.rank) return false;
  for (const NormalNode& node : product.nodes) {
    if (node.op == PlanOp::patches_) return false;
  }
  Splitter(product, depth, before, out).build();
  return true;
}

}  // namespace dvm
