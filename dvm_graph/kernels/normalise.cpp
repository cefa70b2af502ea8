#include "kernels/normalise.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "kernels/fold_positions.h"
#include "kernels/half.h"
#include "kernels/narrow_integers.h"
#include "kernels/numbers.h"
#include "kernels/order_axes.h"
#include "kernels/transforms.h"

namespace dvm {
namespace {

// Of a domain. Products of its extents, strides and element sizes then stay far from overflow.
constexpr int64_t kMostElements = int64_t{1} << 55;

bool is_reduce(PlanOp op) { return info_of(op).kind == PlanOpKind::reduce; }

bool touches_memory(PlanOp op) { return info_of(op).kind == PlanOpKind::access; }

int64_t value_of(DimSlot slot, const int64_t* dims) { return slot == kNoSlot ? 0 : dims[slot]; }

[[noreturn]] void reject(const KernelPlan& plan, size_t node, const char* what) {
  throw std::invalid_argument("kernel plan '" + plan.name + "', node " + std::to_string(node) +
                              ": " + what);
}

uint64_t reduction_identity(PlanOp op, DType dtype) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const bool wide = dtype == DType::i64;
  switch (op) {
    case PlanOp::reduce_prod_: return immediate_bits(dtype, 1, 1);
    case PlanOp::reduce_max_:
      if (dtype == DType::b8) return 0;
      return immediate_bits(
          dtype, -infinity,
          wide ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min());
    case PlanOp::reduce_min_:
      if (dtype == DType::b8) return 1;
      return immediate_bits(
          dtype, infinity,
          wide ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max());
    default: return 0;
  }
}

void evaluate_strides(const std::vector<DimSlot>& slots, const int64_t* dims, uint32_t axes,
                      Strides& out) {
  for (size_t axis = 0; axis < slots.size(); ++axis) {
    out[axis] = axes & bit(static_cast<int>(axis)) ? value_of(slots[axis], dims) : 0;
  }
}

// Nothing moves along an axis of one element, whose stride may be any number (of a Slice by a far
// step, say): one that an instruction cannot hold is none.
void drop_far_strides(const NormalPlan& plan, Strides& strides) {
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (plan.extents[axis] == 1 && strides[axis] != static_cast<int32_t>(strides[axis])) {
      strides[axis] = 0;
    }
  }
}

// A view of memory, without what the node adds to its addresses.
NormalAccess& add_view(const KernelPlan& plan, int32_t index, uint32_t axes, const int64_t* dims,
                       const ValueInfo* values, NormalPlan& out) {
  const Access& view = plan.accesses[index];
  NormalAccess& access = out.accesses.emplace_back();
  access.value = view.value;
  access.storage = values[view.value].dtype;
  access.value_bytes = values[view.value].bytes;
  access.packed_panels = view.packed_panels;
  access.transformed = view.transformed;
  access.block = view.block;
  access.block_bits = view.block_bits;
  access.block_rows = view.block_rows;
  access.element_bytes = static_cast<int64_t>(size_of(access.storage));
  access.offset = value_of(view.offset, dims);
  evaluate_strides(view.strides, dims, axes, access.strides);
  drop_far_strides(out, access.strides);
  return access;
}

void add_numbers(const PlanNode& source, const int64_t* dims, NormalPlan& out) {
  NormalAccess& access = out.accesses.emplace_back();
  access.value = kPlainInteger;
  access.storage = DType::i64;
  access.element_bytes = 1;
  access.offset = value_of(source.offset, dims);
  evaluate_strides(source.strides, dims, source.axes, access.strides);
}

void add_access(const KernelPlan& plan, const PlanNode& source, const int64_t* dims,
                const ValueInfo* values, NormalPlan& out, NormalNode& node) {
  node.access = static_cast<int32_t>(out.accesses.size());
  if (source.op == PlanOp::iota_) return add_numbers(source, dims, out);
  NormalAccess& access = add_view(plan, source.access, source.axes, dims, values, out);
  if (source.op == PlanOp::gather_) {
    access.unread = node.limit == 0;
    if (!access.unread) access.gather_reach = (node.limit - 1) * node.axis_stride;
  }
}

Window evaluate_window(const PlanNode& source, const int64_t* dims) {
  int32_t sizes[kWindowWords * 2] = {};
  for (int i = 0; i < kWindowSizes; ++i) {
    const int64_t size = value_of(source.window[i], dims);
    sizes[i] = static_cast<int32_t>(size);
    if (sizes[i] != size) throw std::invalid_argument("a size of a window is out of range");
  }
  Window window;
  std::memcpy(&window, sizes, sizeof window);
  if (window.pixels() * window.pixel > kMostElements) {
    throw std::invalid_argument("its images have more than 2^55 elements");
  }
  return window;
}

void add_window(const KernelPlan& plan, const PlanNode& source, const int64_t* dims,
                const ValueInfo* values, NormalPlan& out, NormalNode& node) {
  const Window window = evaluate_window(source, dims);
  node.window = static_cast<int32_t>(out.windows.size());
  out.windows.push_back(window);
  node.access = static_cast<int32_t>(out.accesses.size());
  NormalAccess& images = add_view(plan, source.access, source.axes, dims, values, out);
  images.unread = window.pixels() == 0;
  images.gather_reach = (window.pixels() - 1) * window.pixel + window.channels - 1;
  node.numbers = static_cast<int32_t>(out.accesses.size());
  add_numbers(source, dims, out);
  if (source.op != PlanOp::depthwise_) return;
  node.weights = static_cast<int32_t>(out.accesses.size());
  NormalAccess& weights = add_view(plan, source.weights, source.axes, dims, values, out);
  weights.gather_reach = (window.taps() * window.channels - 1) * window.weights;
}

void add_table(const KernelPlan& plan, const PlanNode& source, const int64_t* dims,
               const ValueInfo* values, NormalPlan& out, NormalNode& node) {
  node.weights = static_cast<int32_t>(out.accesses.size());
  add_view(plan, source.weights, 0, dims, values, out).gather_reach = kTableEntries - 1;
}

void check_node(const KernelPlan& plan, size_t index) {
  const PlanNode& node = plan.nodes[index];
  const int arity = info_of(node.op).arity;
  for (int i = 0; i < arity; ++i) {
    const int32_t input = node.inputs[i];
    if (input < 0 || static_cast<size_t>(input) >= index) reject(plan, index, "bad input");
    const uint32_t allowed = is_reduce(node.op)           ? node.axes | node.reduce_axes
                             : node.op == PlanOp::matmul_ ? ~0u
                                                          : node.axes;
    if (plan.nodes[input].axes & ~allowed) reject(plan, index, "input varies along more axes");
  }
  if (touches_memory(node.op) &&
      (node.access < 0 || static_cast<size_t>(node.access) >= plan.accesses.size())) {
    reject(plan, index, "missing access");
  }
  if (is_window(node.op) && node.window.size() != kWindowSizes) {
    reject(plan, index, "missing sizes of its window");
  }
  if ((node.op == PlanOp::depthwise_ || node.op == PlanOp::lookup_) &&
      (node.weights < 0 || static_cast<size_t>(node.weights) >= plan.accesses.size())) {
    reject(plan, index, "missing weights or table");
  }
  if (is_reduce(node.op) && (node.axes & node.reduce_axes)) {
    reject(plan, index, "varies along an axis it reduces");
  }
}

void become_fill(NormalNode& node, uint64_t bits) {
  node.op = PlanOp::fill_;
  node.immediate = bits;
  node.axes = node.reduce_axes = 0;
  for (int32_t& input : node.inputs) input = -1;
}

// A single number, as sizes are where the kernel computes with them, is an immediate.
void fold_number(const NormalPlan& plan, const PlanNode& source, const int64_t* dims,
                 NormalNode& node) {
  if (source.op == PlanOp::iota_ && source.axes == 0) {
    become_fill(node, immediate_bits(DType::i64, 0, value_of(source.offset, dims)));
  } else if (source.op == PlanOp::cast_) {
    const NormalNode& number = plan.nodes[source.inputs[0]];
    if (number.op != PlanOp::fill_ || number.dtype != DType::i64) return;
    int64_t value = 0;
    std::memcpy(&value, &number.immediate, sizeof value);
    if (source.dtype == DType::f32) {  // rounded once
      const auto rounded = static_cast<float>(value);
      become_fill(node, immediate_bits(DType::f32, double{rounded}, 0));
    } else {
      become_fill(node, immediate_bits(source.dtype, static_cast<double>(value), value));
    }
  }
}

void evaluate(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values,
              const int64_t* room, NormalPlan& out) {
  out.kind = plan.kind;
  out.weighed = plan.weighed;
  out.rank = static_cast<int>(plan.extents.size());
  out.m_axis = plan.m_axis;
  out.n_axis = plan.n_axis;
  out.k_axis = plan.k_axis;
  out.inner_k_axis = plan.inner_k_axis;
  out.nodes.clear();
  out.accesses.clear();
  out.windows.clear();
  if (out.rank > kMaxDomainRank) throw std::invalid_argument("kernel plan has too many axes");
  for (int axis = 0; axis < out.rank; ++axis) {
    const bool open = room != nullptr && room[axis] > 0;
    out.extents[axis] = open ? room[axis] : dims[plan.extents[axis]];
    out.open[axis] = {open ? axis : -1, 1};
  }
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    check_node(plan, i);
    const PlanNode& source = plan.nodes[i];
    NormalNode& node = out.nodes.emplace_back();
    node.op = source.op;
    node.dtype = source.dtype;
    node.element = source.element;
    node.narrow_to = source.narrow_to;
    node.axes = source.axes;
    node.reduce_axes = is_reduce(source.op) ? source.reduce_axes : 0;
    for (int k = 0; k < 3; ++k) node.inputs[k] = source.inputs[k];
    node.limit = value_of(source.limit, dims);
    if (source.op == PlanOp::gather_) node.axis_stride = value_of(source.offset, dims);
    fold_number(out, source, dims, node);
    if (is_window(source.op)) {
      add_window(plan, source, dims, values, out, node);
    } else if (source.op == PlanOp::lookup_) {
      add_table(plan, source, dims, values, out, node);
    } else if (touches_memory(node.op) || node.op == PlanOp::iota_) {
      add_access(plan, source, dims, values, out, node);
    }
    if (source.op == PlanOp::fill_) {
      node.immediate = immediate_bits(source.dtype, source.scalar, source.integer);
      node.axes = 0;
    }
  }
}

// Drops nodes that `keep` does not hold, and reductions that fold nothing: their operand stands in.
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

// Drops what no store needs that is not over an empty axis. False: there is none.
bool drop_unread(NormalPlan& plan, uint32_t empty, std::vector<uint8_t>& keep,
                 std::vector<int32_t>& renumber) {
  keep.assign(plan.nodes.size(), 0);
  bool writes = false;
  for (size_t i = plan.nodes.size(); i-- > 0;) {
    const NormalNode& node = plan.nodes[i];
    if (node.op == PlanOp::store_ && !(node.axes & empty)) keep[i] = 1, writes = true;
    if (!keep[i]) continue;
    for (int32_t input : node.inputs) {
      if (input >= 0) keep[input] = 1;
    }
  }
  compact(plan, keep, renumber);
  return writes;
}

void close_axis(NormalPlan& plan, int axis) {
  plan.extents[axis] = 1;
  plan.open[axis] = {};
}

// Rewrites the plan so that nothing varies along the empty axes, nor along others of what they
// empty. False: nothing is left to write.
bool remove_empty_axes(NormalPlan& plan, uint32_t empty, std::vector<uint8_t>& keep,
                       std::vector<int32_t>& renumber) {
  for (NormalNode& node : plan.nodes) {
    if (is_reduce(node.op) && (node.reduce_axes & empty) && !(node.axes & empty)) {
      become_fill(node, reduction_identity(node.op, node.dtype));
    }
    if (node.op == PlanOp::matmul_ && !(node.axes & empty)) {
      const int folded = plan.is_inner(node) ? plan.inner_k_axis : plan.k_axis;
      if (empty & bit(folded)) become_fill(node, 0);
    }
  }
  const bool writes = drop_unread(plan, empty, keep, renumber);
  int products = 0, inner = 0;
  for (const NormalNode& node : plan.nodes) {
    if (node.op != PlanOp::matmul_) continue;
    ++products;
    inner += plan.is_inner(node);
  }
  if (products == 1 && inner == 1) {  // it is the product now
    plan.n_axis = plan.k_axis;
    plan.k_axis = plan.inner_k_axis;
  }
  if (products < 2) plan.inner_k_axis = -1;
  if (products == 0) {
    plan.kind = KernelKind::vector;
    plan.m_axis = plan.n_axis = plan.k_axis = -1;
  }
  uint32_t left = 0;
  for (const NormalNode& node : plan.nodes) left |= node.axes | node.reduce_axes;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if ((empty | ~left) & bit(axis)) close_axis(plan, axis);
  }
  return writes;
}

void check_volume(const NormalPlan& plan) {
  int64_t volume = 1;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (plan.extents[axis] > kMostElements / volume) {
      throw std::invalid_argument("it has more than 2^55 elements to compute");
    }
    volume *= plan.extents[axis];
  }
}

uint32_t reorder_mask(uint32_t mask, const int* order, int count) {
  uint32_t result = 0;
  for (int i = 0; i < count; ++i) result |= (mask >> order[i] & 1u) << i;
  return result;
}

}  // namespace

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

bool has_role(const NormalPlan& plan, int axis) {
  return axis == plan.m_axis || axis == plan.n_axis || axis == plan.k_axis ||
         axis == plan.inner_k_axis;
}

// Axes a and b, neighbours but for axes of extent 1, are one axis to every node and access.
bool mergeable(const NormalPlan& plan, int a, int b) {
  if (has_role(plan, a) || (has_role(plan, b) && b != plan.m_axis)) return false;
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
    if (plan.extents[axis] != 1 || has_role(plan, axis)) stay[staying++] = axis;
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
    if (has_role(plan, axis) || !(candidates & bit(axis))) continue;
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

uint64_t immediate_bits(DType dtype, double scalar, int64_t integer) {
  uint64_t bits = 0;
  const auto put = [&bits](auto value) { std::memcpy(&bits, &value, sizeof value); };
  switch (dtype) {
    case DType::f32: put(static_cast<float>(scalar)); break;
    case DType::f64: put(scalar); break;
    case DType::f16: put(half_of_float(static_cast<float>(scalar))); break;
    case DType::i32: put(static_cast<int32_t>(integer)); break;
    case DType::b8: put(static_cast<uint8_t>(integer != 0)); break;
    default: put(integer); break;
  }
  return bits;
}

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

bool normalise(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values,
               NormalPlan& out, const int64_t* room) {
  thread_local std::vector<uint8_t> keep;
  thread_local std::vector<int32_t> renumber;
  evaluate(plan, dims, values, room, out);
  uint32_t empty = 0;
  for (int axis = 0; axis < out.rank; ++axis) {
    if (out.extents[axis] < 0) throw std::invalid_argument("kernel plan has a negative extent");
    if (out.extents[axis] == 0) empty |= bit(axis);
  }
  if (empty != 0 && !remove_empty_axes(out, empty, keep, renumber)) return false;
  check_volume(out);
  const bool folded = fold_positions(out);
  if (narrow_integers(out) || folded) drop_unread(out, 0, keep, renumber);
  for (NormalAccess& access : out.accesses) {
    if (access.packed_panels && access.transformed)
      access.panel_k = kTransformedRows * out.extents[out.k_axis];
  }
  order_axes(out);
  return true;
}

}  // namespace dvm
