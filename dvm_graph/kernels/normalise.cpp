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
  if (window.pixels() * window.pixel > kTooFar) {
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
    if (plan.extents[axis] > kTooFar / volume) {
      throw std::invalid_argument("it has more than 2^55 elements to compute");
    }
    volume *= plan.extents[axis];
  }
}

}  // namespace

bool NormalPlan::is_open() const {
  return std::any_of(open.begin(), open.begin() + rank,
                     [](const OpenAxis& axis) { return axis.is_open(); });
}

uint32_t NormalPlan::reduced_axes() const {
  uint32_t axes = 0;
  for (const NormalNode& node : nodes) axes |= node.reduce_axes;
  return axes;
}

int64_t NormalPlan::elements(uint32_t axes) const {
  int64_t count = 1;
  for (int axis = 0; axis < rank; ++axis) {
    if (axes & bit(axis)) count *= extents[axis];
  }
  return count;
}

int32_t NormalPlan::add(const NormalNode& node) {
  nodes.push_back(node);
  return static_cast<int32_t>(nodes.size()) - 1;
}

int32_t NormalPlan::add(const NormalAccess& access) {
  accesses.push_back(access);
  return static_cast<int32_t>(accesses.size()) - 1;
}

int32_t NormalPlan::add_load(DType dtype, uint32_t axes, const NormalAccess& from) {
  return add({.op = PlanOp::load_, .dtype = dtype, .axes = axes, .access = add(from)});
}

int32_t NormalPlan::add_store(int32_t input, const NormalAccess& to) {
  const NormalNode& stored = nodes[static_cast<size_t>(input)];
  return add({.op = PlanOp::store_,
              .dtype = stored.dtype,
              .axes = stored.axes,
              .inputs = {input, -1, -1},
              .access = add(to)});
}

int32_t NormalPlan::add_from(const NormalPlan& other, NormalNode node) {
  for (int32_t* access : {&node.access, &node.weights, &node.numbers}) {
    if (*access >= 0) *access = add(other.accesses[static_cast<size_t>(*access)]);
  }
  if (node.window >= 0) {
    windows.push_back(other.windows[static_cast<size_t>(node.window)]);
    node.window = static_cast<int32_t>(windows.size()) - 1;
  }
  return add(node);
}

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
