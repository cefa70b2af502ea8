#include "kernels/order_axes.h"

#include <algorithm>

#include "kernels/numbers.h"

namespace dvm {
namespace {

uint32_t reorder_mask(uint32_t mask, const int* order, int count) {
  uint32_t result = 0;
  for (int i = 0; i < count; ++i) result |= (mask >> order[i] & 1u) << i;
  return result;
}

}  // namespace

void compact(NormalPlan& plan, const std::vector<uint8_t>& keep, std::vector<int32_t>& renumber) {
  renumber.assign(plan.nodes.size(), -1);
  size_t count = 0;
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    NormalNode node = plan.nodes[i];
    if (!keep[i]) continue;
    for (int32_t& input : node.inputs) input = input < 0 ? -1 : renumber[input];
    if (is_reduce(node.op) && node.reduce_axes == 0) {
      renumber[i] = node.inputs[0];
      continue;
    }
    renumber[i] = static_cast<int32_t>(count);
    plan.nodes[count++] = node;
  }
  plan.nodes.resize(count);
}

void close_axis(NormalPlan& plan, int axis) {
  plan.extents[axis] = 1;
  plan.open[axis] = {};
}

void reorder_axes(NormalPlan& plan, const int* order, int count) {
  for (NormalNode& node : plan.nodes) {
    node.axes = reorder_mask(node.axes, order, count);
    if (node.reduce_axes != 0) node.reduce_axes = reorder_mask(node.reduce_axes, order, count);
  }
  for (NormalAccess& access : plan.accesses) {
    const Strides old = access.strides;
    for (int i = 0; i < count; ++i) access.strides[i] = old[order[i]];
  }
  const auto extents = plan.extents;
  const auto open = plan.open;
  const int roles[4] = {plan.m_axis, plan.n_axis, plan.k_axis, plan.inner_k_axis};
  for (int i = 0; i < count; ++i) {
    plan.extents[i] = extents[order[i]];
    plan.open[i] = open[order[i]];
    if (order[i] == roles[0]) plan.m_axis = i;
    if (order[i] == roles[1]) plan.n_axis = i;
    if (order[i] == roles[2]) plan.k_axis = i;
    if (order[i] == roles[3]) plan.inner_k_axis = i;
  }
  plan.rank = count;
}

namespace {

// Axes a and b, neighbours but for axes of extent 1, are one axis to every node and access.
bool mergeable(const NormalPlan& plan, int a, int b) {
  if (plan.has_role(a) || (plan.has_role(b) && b != plan.m_axis)) return false;
  if (plan.open[b].is_open()) return false;  // rows may end before the next one begins
  for (const NormalNode& node : plan.nodes) {
    if ((node.axes >> a & 1) != (node.axes >> b & 1)) return false;
    if ((node.reduce_axes >> a & 1) != (node.reduce_axes >> b & 1)) return false;
  }
  for (const NormalAccess& access : plan.accesses) {
    if (access.strides[a] != access.strides[b] * plan.extents[b]) return false;
  }
  return true;
}

// Axes of extent 1 go, and an axis that is one with the next goes up in it. What it goes up in
// moves as its innermost axis does, so that merging a pair changes nothing for the others.
void merge_axes(NormalPlan& plan, std::vector<uint8_t>& keep, std::vector<int32_t>& renumber) {
  int stay[kMaxDomainRank] = {}, order[kMaxDomainRank] = {};
  int staying = 0, count = 0;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (plan.extents[axis] != 1 || plan.has_role(axis)) stay[staying++] = axis;
  }
  int64_t extents[kMaxDomainRank] = {}, extent = 1;
  OpenAxis open[kMaxDomainRank], first;  // only the outermost of those that go up in one is open
  for (int i = 0; i < staying; ++i) {
    extent *= plan.extents[stay[i]];
    if (plan.open[stay[i]].is_open()) {
      first = plan.open[stay[i]];
    } else {
      first.unit *= plan.extents[stay[i]];
    }
    if (i + 1 < staying && mergeable(plan, stay[i], stay[i + 1])) continue;
    extents[count] = extent;
    open[count] = first;
    order[count++] = stay[i];
    extent = 1;
    first = {};
  }
  if (count == plan.rank) return;
  reorder_axes(plan, order, count);
  std::copy_n(extents, count, plan.extents.begin());
  std::copy_n(open, count, plan.open.begin());
  bool folds_nothing = false;
  for (const NormalNode& node : plan.nodes) {
    folds_nothing |= is_reduce(node.op) && node.reduce_axes == 0;
  }
  if (!folds_nothing) return;
  keep.assign(plan.nodes.size(), 1);
  compact(plan, keep, renumber);
}

// The longest axis of the products' batch along which no B varies, or -1; the innermost wins a tie.
int longest_axis_without_b(const NormalPlan& plan) {
  uint32_t candidates = ~plan.reduced_axes();
  for (const NormalNode& node : plan.nodes) {
    if (node.op == PlanOp::matmul_) candidates &= node.axes & ~plan.nodes[node.inputs[1]].axes;
  }
  int best = -1;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (plan.has_role(axis) || !(candidates & bit(axis))) continue;
    if (best < 0 || plan.extents[axis] >= plan.extents[best]) best = axis;
  }
  return best;
}

// Rows that no block of a cube unit exceeds: with fewer of them, each tile has work for a part of
// it.
constexpr int64_t kBlockRows = 16;

// Whether another axis of the batch may be the rows instead of these: nothing counts along them.
bool rows_may_change(const NormalPlan& plan) {
  return plan.extents[plan.m_axis] == 1 ||
         (plan.windows.empty() && !(plan.reduced_axes() & bit(plan.m_axis)));
}

// Products of few rows each that share B are the rows of fewer products: those of a decoder's
// single token, of which B is then read once for all, or the few pixels that one becomes in a
// transposed convolution.
void gather_rows(NormalPlan& plan) {
  if (plan.m_axis < 0) return;
  const int few = plan.m_axis;
  const int64_t count_of_few = plan.extents[few];
  if (count_of_few >= kBlockRows || !rows_may_change(plan)) return;
  const int rows = longest_axis_without_b(plan);
  if (rows < 0 || (count_of_few > 1 && plan.extents[rows] < 2 * count_of_few)) return;
  int order[kMaxDomainRank];
  int count = 0;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (axis != rows) order[count++] = axis == few ? rows : axis;
    if (axis == rows && count_of_few > 1) order[count++] = few;
  }
  plan.m_axis = rows;
  reorder_axes(plan, order, count);
}

// Elements of a row of which vectors hold several.
constexpr int64_t kShortRow = 8;

// The axis along which most of what is read and written lies contiguous; the innermost axis wins a
// tie. Gathers read for each index, and windows their images, and weights, anew for each of them.
// Short rows that are gathered count for less: they are read row by row, whatever is the inner
// axis.
int most_contiguous_axis(const NormalPlan& plan) {
  double elements[kMaxDomainRank] = {};  // no overflow, whatever the extents
  const auto count_access = [&](const NormalAccess& access, uint32_t anew, double times,
                                double whole_row = 1) {
    double count = times;
    for (int axis = 0; axis < plan.rank; ++axis) {
      if (access.strides[axis] != 0 || anew & bit(axis))
        count *= static_cast<double>(plan.extents[axis]);
    }
    for (int axis = 0; axis < plan.rank; ++axis) {
      const auto row = static_cast<double>(plan.extents[axis]);
      if (access.strides[axis] == 1) elements[axis] += count * std::min(1.0, row / whole_row);
    }
  };
  for (const NormalNode& node : plan.nodes) {
    if (!touches_memory(node.op)) continue;
    const bool windows = is_window(node.op);
    const double times = windows ? static_cast<double>(plan.windows[node.window].taps()) : 1;
    const bool gathers = node.op == PlanOp::gather_;
    const uint32_t anew = windows || gathers ? node.axes : 0;
    count_access(plan.accesses[node.access], anew, times, gathers ? kShortRow : 1);
    if (node.weights >= 0) count_access(plan.accesses[node.weights], anew, times);
  }
  int best = plan.rank - 1;
  for (int axis = plan.rank - 2; axis >= 0; --axis) {
    if (elements[axis] > elements[best]) best = axis;
  }
  return best;
}

// The axis that goes next to `inner` even where one of them is reduced and the other is not, for
// together they are contiguous: that of groups whose results, of windows, lie along `inner`, or
// what the neighbours of an `inner` that is short lie along. Of a short one that is not reduced
// those are the most of what is read and written, such as the columns of an image beside the few
// that each of them became. -1: none.
int axis_beside(const NormalPlan& plan, int inner) {
  const uint32_t reduced = plan.reduced_axes();
  const bool is_short = plan.extents[inner] <= kShortRow;
  const bool folded = is_short && (reduced & bit(inner)) != 0;
  double elements[kMaxDomainRank] = {};
  for (const NormalNode& node : plan.nodes) {
    const bool moves = node.op == PlanOp::load_ || node.op == PlanOp::store_;
    const bool beside = folded ? node.op == PlanOp::load_ : is_short && moves;
    const int32_t access = beside ? node.access : node.weights;
    if (access < 0) continue;
    const Strides& strides = plan.accesses[access].strides;
    if (strides[inner] != 1) continue;
    double count = 1;
    for (int axis = 0; axis < plan.rank; ++axis) {
      if (strides[axis] != 0) count *= static_cast<double>(plan.extents[axis]);
    }
    for (int axis = 0; axis < plan.rank; ++axis) {
      if (axis == inner || strides[axis] != plan.extents[inner]) continue;
      if (!beside || folded) return axis;
      if (!(reduced & bit(axis))) elements[axis] += count;
    }
  }
  int best = -1;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (elements[axis] > (best < 0 ? 0 : elements[best])) best = axis;
  }
  return best;
}

void choose_axis_order(NormalPlan& plan, std::vector<uint8_t>& keep,
                       std::vector<int32_t>& renumber) {
  if (plan.rank < 2) return;
  const uint32_t reduced = plan.reduced_axes();
  const int inner = most_contiguous_axis(plan), beside = axis_beside(plan, inner);
  int order[kMaxDomainRank];
  int count = 0;
  for (const bool is_reduced : {false, true}) {
    for (int axis = 0; axis < plan.rank; ++axis) {
      const bool last = axis == inner || axis == beside;
      if (!last && ((reduced & bit(axis)) != 0) == is_reduced) order[count++] = axis;
    }
  }
  if (beside >= 0) order[count++] = beside;
  order[count++] = inner;
  bool moved = false;
  for (int i = 0; i < count; ++i) moved |= order[i] != i;
  if (!moved) return;
  reorder_axes(plan, order, count);
  merge_axes(plan, keep, renumber);
}

}  // namespace

void drop_unused_axes(NormalPlan& plan) {
  uint32_t used = 0;
  for (const NormalNode& node : plan.nodes) used |= node.axes | node.reduce_axes;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (!(used & bit(axis))) close_axis(plan, axis);
  }
}

void order_axes(NormalPlan& plan) {
  thread_local std::vector<uint8_t> keep;
  thread_local std::vector<int32_t> renumber;
  merge_axes(plan, keep, renumber);
  gather_rows(plan);
  if (plan.kind == KernelKind::vector) choose_axis_order(plan, keep, renumber);
}

}  // namespace dvm
