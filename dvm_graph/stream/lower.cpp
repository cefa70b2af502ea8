#include "stream/lower.h"

#include <algorithm>
#include <bit>

#include "runtime/errors.h"
#include "stream/meeting.h"
#include "stream/unsupported.h"

namespace dvm::stream {

void Places::clear(const Graph& graph) {
  roots_.resize(graph.values.size());
  for (size_t i = 0; i < roots_.size(); i++) roots_[i] = static_cast<int32_t>(i);
  parts_.assign(graph.values.size(), {});
}

void Places::join(int32_t value, int32_t joined, int axis, int64_t start) {
  parts_[static_cast<size_t>(value)] = {joined, axis, start};
}

int32_t Places::buffer(int32_t value) const {
  while (is_placed(value)) value = parts_[static_cast<size_t>(value)].joined;
  return root(value);
}

Place Places::of(const Graph& graph, int32_t value) const {
  const PartOf& part = parts_[static_cast<size_t>(value)];
  if (part.joined >= 0) {
    Place whole = of(graph, part.joined);
    whole.offset += part.start * whole.strides[part.axis];
    return whole;
  }
  Place place;
  place.root = root(value);
  const Shape& shape = graph.values[static_cast<size_t>(value)].shape;
  int64_t step = 1;
  for (int axis = shape.rank - 1; axis >= 0; axis--) {
    place.strides[axis] = step;
    step *= shape.extents[axis];
  }
  return place;
}

void Lowering::Address::set(Atom atom, int64_t stride) {
  for (uint32_t i = 0; i < count; i++) {
    if (strides[i].atom == atom) {
      strides[i].stride = stride;
      return;
    }
  }
  if (count == std::size(strides)) throw CompileError("a value of a stream has too many axes");
  strides[count++] = {atom, stride};
}

int64_t Lowering::Address::at(Atom atom) const {
  for (uint32_t i = 0; i < count; i++) {
    if (strides[i].atom == atom) return strides[i].stride;
  }
  return 0;
}

void Lowering::lower(const Group& group, std::span<const int32_t> outputs, Draft& out) {
  draft_ = &out;
  KernelPlan& plan = out.plan;
  for (PlanNode& node : plan.nodes) spare_nodes_.push_back(std::move(node));
  for (Access& access : plan.accesses) spare_accesses_.push_back(std::move(access));
  plan.nodes.clear();
  plan.accesses.clear();
  plan.extents.clear();
  plan.m_axis = plan.n_axis = plan.k_axis = plan.inner_k_axis = -1;
  plan.weighed = group.resident;
  out.dims.clear();
  out.arguments.clear();
  out.outputs.assign(outputs.begin(), outputs.end());
  loads_.clear();
  at_.resize(graph_.values.size());
  inside_.resize(graph_.nodes.size());
  epoch_++;
  for (const int32_t index : group.nodes) {
    inside_[static_cast<size_t>(index)] = epoch_;
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    at(node.value) = -1;
    for (const int32_t value : graph_.operands(node)) at(value) = -1;
  }
  order_axes(group, outputs);
  if (domain_.size() > GroupMeeting::kMaxAxes) {
    throw UnsupportedError("a kernel of a stream has loops over more than 10 axes");
  }
  for (const Atom atom : domain_) {
    plan.extents.push_back(static_cast<DimSlot>(out.dims.size()));
    out.dims.push_back(space_.extent(atom));
  }
  for (const int32_t index : group.nodes) lower_node(graph_.nodes[static_cast<size_t>(index)]);
  for (const int32_t value : outputs) store(value);
  const bool cube = group.part.kind == PartKind::cube;
  plan.kind = !cube                      ? KernelKind::vector
              : group.part.operators > 1 ? KernelKind::mix
                                         : KernelKind::cube;
  if (!has_roles_) return;
  plan.m_axis = index_of(m_);
  plan.n_axis = index_of(n_);
  plan.k_axis = index_of(k_);
  plan.inner_k_axis = inner_k_ == kNoAtom ? -1 : index_of(inner_k_);
}

// -- domain

void Lowering::order_axes(const Group& group, std::span<const int32_t> outputs) {
  domain_.clear();
  has_roles_ = false;
  const Node *first = nullptr, *product = nullptr;
  for (const int32_t index : group.nodes) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    if (node.op != Op::matmul) continue;
    if (first == nullptr) first = &node;
    product = &node;
  }
  const bool chained = product != nullptr && contracted(*first) != contracted(*product);
  const Node* const inner = chained ? first : nullptr;
  if (product != nullptr) return order_matrix(inner, *product);
  const auto iterates = [&](const Node& node) {
    return !is_view(node.op) ||
           std::find(outputs.begin(), outputs.end(), node.value) != outputs.end();
  };
  AtomList best;
  for (const int32_t index : group.nodes) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    if (!iterates(node)) continue;
    const AtomList space = space_.resolved(node.iterated());
    if (space.size() >= best.size()) best = space;
  }
  for (const int32_t index : group.nodes) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    if (!iterates(node)) continue;
    for (const Atom atom : space_.resolved(node.iterated())) {
      if (!best.contains(atom)) domain_.add(atom);
    }
  }
  domain_.append(best);
}

// `inner` computes the A operand of `product`, where there are two.
void Lowering::order_matrix(const Node* inner, const Node& product) {
  const std::span<const Atom> result = product.result.all();
  k_ = contracted(product);
  n_ = space_.resolved(result.back()).front();
  AtomList rows = space_.resolved(result[result.size() - 2]);
  if (rows.empty()) rows.push_back(space_.atom(1));
  m_ = rows.back();
  space_.resolve(result.first(result.size() - 2), domain_);
  domain_.append(rows);
  domain_.push_back(n_);
  domain_.push_back(k_);
  inner_k_ = inner == nullptr ? kNoAtom : contracted(*inner);
  if (inner != nullptr) domain_.push_back(inner_k_);
  has_roles_ = true;
}

int Lowering::index_of(Atom atom) const {
  for (uint32_t i = 0; i < domain_.size(); i++) {
    if (domain_[i] == atom) return static_cast<int>(i);
  }
  return -1;
}

uint32_t Lowering::mask(std::span<const Atom> atoms) {
  uint32_t bits = 0;
  for (const Atom atom : space_.resolved(atoms)) {
    const int index = index_of(atom);
    if (index < 0) throw CompileError("a kernel of a stream varies along an axis that it has not");
    bits |= 1U << index;
  }
  return bits;
}

// -- addresses

void Lowering::add_strides(std::span<const Atom> axes, std::span<const int64_t> strides,
                           Address& out) {
  for (size_t axis = 0; axis < axes.size(); axis++) {
    int64_t step = strides[axis];
    const AtomList atoms = space_.resolved(axes[axis]);
    for (size_t i = atoms.size(); i-- > 0;) {
      out.set(atoms[i], step);
      step *= space_.extent(atoms[i]);
    }
  }
}

// Where an operand lies, through the views of this group that lead to it.
void Lowering::address(const Node& node, uint32_t index, Address& out) {
  const int32_t value = graph_.operands(node)[index];
  const int32_t producer = graph_.values[static_cast<size_t>(value)].producer;
  if (producer >= 0 && in_group(producer)) {
    const Node& view = graph_.nodes[static_cast<size_t>(producer)];
    if (is_view(view.op)) {
      if (!graph_.layout(view, 0).known()) return strided(view, out);
      return address(view, 0, out);
    }
  }
  const Place place = places_.of(graph_, value);
  out.root = place.root;
  out.offset = place.offset;
  const Layout& layout = graph_.layout(node, index);
  add_strides(layout.all(), {place.strides, static_cast<size_t>(layout.rank)}, out);
}

// Where a view or a reshape that does not regroup reads.
void Lowering::strided(const Node& node, Address& out) {
  const Place place = places_.of(graph_, graph_.operands(node)[0]);
  const auto rank = static_cast<size_t>(node.result.rank);
  const std::span<const int64_t> attrs = graph_.attributes(node);
  out.root = place.root;
  out.offset = place.offset;
  if (node.op == Op::view) {  // shape, strides, offset
    out.offset += attrs[2 * rank];
    return add_strides(node.result.all(), attrs.subspan(rank, rank), out);
  }
  if (node.op == Op::slice) {  // starts, steps, sizes
    int64_t strides[kMaxRank];
    for (size_t axis = 0; axis < rank; axis++) {
      strides[axis] = place.strides[axis] * attrs[rank + axis];
      out.offset += place.strides[axis] * attrs[axis];
    }
    return add_strides(node.result.all(), {strides, rank}, out);
  }
  const Place dense = places_.of(graph_, node.value);
  add_strides(node.result.all(), {dense.strides, rank}, out);
}

DimSlot Lowering::slot(int64_t number) {
  if (number == 0) return kNoSlot;
  draft_->dims.push_back(number);
  return static_cast<DimSlot>(draft_->dims.size() - 1);
}

int32_t Lowering::argument(int32_t root) {
  std::vector<int32_t>& arguments = draft_->arguments;
  const auto known = std::find(arguments.begin(), arguments.end(), root);
  if (known != arguments.end()) return static_cast<int32_t>(known - arguments.begin());
  arguments.push_back(root);
  return static_cast<int32_t>(arguments.size() - 1);
}

int32_t Lowering::add_access(const Address& address) {
  Access access;
  if (!spare_accesses_.empty()) {
    access = std::move(spare_accesses_.back());
    spare_accesses_.pop_back();
  }
  access.value = argument(address.root);
  access.offset = slot(address.offset);
  access.packed_panels = false;
  access.strides.clear();
  for (const Atom atom : domain_) access.strides.push_back(slot(address.at(atom)));
  draft_->plan.accesses.push_back(std::move(access));
  return static_cast<int32_t>(draft_->plan.accesses.size() - 1);
}

// -- operands

PlanNode& Lowering::emit(PlanOp op, DType dtype, uint32_t axes) {
  PlanNode node{};
  if (!spare_nodes_.empty()) {
    std::vector<DimSlot> strides = std::move(spare_nodes_.back().strides);
    spare_nodes_.pop_back();
    strides.clear();
    node.strides = std::move(strides);
  }
  node.op = op;
  node.dtype = dtype;
  node.axes = axes;
  draft_->plan.nodes.push_back(std::move(node));
  return draft_->plan.nodes.back();
}

// The plan node that holds an operand: computed before, a number, or loaded.
int32_t Lowering::operand(const Node& node, uint32_t index) {
  const int32_t number = graph_.operands(node)[index];
  const GraphValue& value = graph_.values[static_cast<size_t>(number)];
  if (at(number) >= 0) {
    check_points(node, index);
    return at(number);
  }
  if (value.constant) return fill(value);
  Address where;
  address(node, index, where);
  AtomList atoms;
  for (uint32_t i = 0; i < where.count; i++) atoms.push_back(where.strides[i].atom);
  return load(where, value.dtype, mask(atoms));
}

// What was computed before is read at the points at which it was computed: it varies along no axes
// that the operand has not, but for those of extent 1, which products keep.
void Lowering::check_points(const Node& node, uint32_t index) {
  const Layout& layout = graph_.layout(node, index);
  uint32_t lost = axes_of(at(graph_.operands(node)[index]));
  if (layout.known()) {
    for (const Atom atom : space_.resolved(layout.all())) {
      if (const int axis = index_of(atom); axis >= 0) lost &= ~(1U << axis);
    }
  }
  for (uint32_t axis = 0; axis < domain_.size(); axis++) {
    if ((lost >> axis & 1) && space_.extent(domain_[axis]) != 1) {
      throw CompileError(std::string("a stream: ") + name_of(node.op) +
                         " reads a value at other points than those it is computed at");
    }
  }
}

int32_t Lowering::load(const Address& address, DType dtype, uint32_t axes) {
  Load wanted{argument(address.root), address.offset, {}, axes, -1};
  for (uint32_t i = 0; i < domain_.size(); i++) wanted.strides[i] = address.at(domain_[i]);
  for (const Load& known : loads_) {
    if (known.argument == wanted.argument && known.offset == wanted.offset && known.axes == axes &&
        known.strides == wanted.strides) {
      return known.node;
    }
  }
  const int32_t access = add_access(address);
  emit(PlanOp::load_, register_dtype(dtype), axes).access = access;
  wanted.node = last();
  loads_.push_back(wanted);
  return wanted.node;
}

int32_t Lowering::fill(const GraphValue& constant) {
  return is_float(constant.dtype) ? fill_number(constant.scalar, 0, constant.dtype)
                                  : fill_number(0, constant.integer, constant.dtype);
}

// One node for one number: products that read it read the same rows.
int32_t Lowering::fill_number(double scalar, int64_t integer, DType dtype) {
  const DType type = register_dtype(dtype);
  const auto bits = [](double number) { return std::bit_cast<uint64_t>(number); };
  const std::vector<PlanNode>& nodes = draft_->plan.nodes;
  for (size_t i = 0; i < nodes.size(); i++) {
    if (nodes[i].op == PlanOp::fill_ && nodes[i].dtype == type && nodes[i].integer == integer &&
        bits(nodes[i].scalar) == bits(scalar)) {
      return static_cast<int32_t>(i);
    }
  }
  PlanNode& node = emit(PlanOp::fill_, type, 0);
  node.scalar = scalar;
  node.integer = integer;
  return last();
}

// -- operators

void Lowering::lower_node(const Node& node) {
  if (is_view(node.op)) return lower_view(node);
  int32_t made = -1;
  switch (node.op) {
    case Op::matmul: made = matmul(node); break;
    case Op::gather: made = gather(node); break;
    case Op::iota: made = iota(node); break;
    case Op::cast: made = cast(node); break;
    default: made = compute(node);
  }
  at(node.value) = made;
}

// Views compute nothing; one that reads memory for others is loaded where it is used.
void Lowering::lower_view(const Node& node) {
  const int32_t source = graph_.operands(node)[0];
  const GraphValue& value = graph_.values[static_cast<size_t>(source)];
  if (at(source) >= 0) {
    check_points(node, 0);
    at(node.value) = at(source);
  } else if (value.constant) {
    at(node.value) = fill(value);
  }
}

int32_t Lowering::compute(const Node& node) {
  int32_t operands[3] = {-1, -1, -1};
  uint32_t axes = 0;
  for (uint32_t i = 0; i < node.operands; i++) {
    operands[i] = operand(node, i);
    axes |= axes_of(operands[i]);
  }
  const DType dtype = graph_.result(node).dtype;
  const uint32_t reduced = mask(graph_.reduced_atoms(node));
  if (node.kind == Kind::reduce && reduced == 0) return operands[0];
  PlanNode& made = emit(plan_op(node.op), register_dtype(dtype), axes & ~reduced);
  std::copy(operands, operands + 3, made.inputs);
  made.reduce_axes = reduced;
  int32_t result = last();
  if (int64_t extreme = 0; extreme_of_nothing(node.op, dtype, extreme)) {
    const int32_t least = fill_number(0, extreme, dtype);
    const PlanOp join = node.op == Op::reduce_max ? PlanOp::max_ : PlanOp::min_;
    PlanNode& joined = emit(join, register_dtype(dtype), axes & ~reduced);
    joined.inputs[0] = result;
    joined.inputs[1] = least;
    result = last();
  }
  return needs_narrow(node.op, dtype) ? narrow(result, dtype) : result;
}

int32_t Lowering::narrow(int32_t operand, DType dtype) {
  PlanNode& made = emit(PlanOp::narrow_, register_dtype(dtype), axes_of(operand));
  made.inputs[0] = operand;
  made.narrow_to = dtype;
  return last();
}

int32_t Lowering::cast(const Node& node) {
  const DType source = graph_.operand(node, 0).dtype, target = graph_.result(node).dtype;
  int32_t result = operand(node, 0);
  if (register_dtype(source) != register_dtype(target)) {
    PlanNode& made = emit(PlanOp::cast_, register_dtype(target), axes_of(result));
    made.inputs[0] = result;
    result = last();
  }
  return cast_needs_narrow(source, target) ? narrow(result, target) : result;
}

int32_t Lowering::iota(const Node& node) {  // axis, start, step, shape
  const std::span<const int64_t> attrs = graph_.attributes(node);
  Address steps;
  add_strides(node.result.all().subspan(static_cast<size_t>(attrs[0]), 1), attrs.subspan(2, 1),
              steps);
  AtomList atoms;
  for (uint32_t i = 0; i < steps.count; i++) atoms.push_back(steps.strides[i].atom);
  PlanNode& made = emit(PlanOp::iota_, DType::i64, mask(atoms));
  made.offset = slot(attrs[1]);
  for (const Atom atom : domain_) made.strides.push_back(slot(steps.at(atom)));
  return last();
}

int32_t Lowering::gather(const Node& node) {
  const auto axis = static_cast<size_t>(graph_.attributes(node)[0]);
  const GraphValue& source = graph_.operand(node, 0);
  const int32_t index = operand(node, 1);
  Address where;
  address(node, 0, where);
  const Atom gathered = space_.resolved(graph_.layout(node, 0).axes[axis]).front();
  const int64_t stride = where.at(gathered);
  AtomList atoms;
  Address others{where.root, where.offset, 0, {}};
  for (uint32_t i = 0; i < where.count; i++) {
    if (where.strides[i].atom == gathered) continue;
    others.set(where.strides[i].atom, where.strides[i].stride);
    atoms.push_back(where.strides[i].atom);
  }
  const int32_t access = add_access(others);
  const uint32_t axes = mask(atoms) | axes_of(index);
  const DimSlot limit = static_cast<DimSlot>(draft_->dims.size());
  draft_->dims.push_back(source.shape.extents[axis]);
  PlanNode& made = emit(PlanOp::gather_, register_dtype(source.dtype), axes);
  made.inputs[0] = index;
  made.access = access;
  made.limit = limit;
  made.offset = slot(stride);
  return last();
}

int32_t Lowering::matmul(const Node& node) {
  const int32_t a = matrix_operand(node, 0), b = matrix_operand(node, 1);
  const uint32_t axes = mask(node.result) | 1U << index_of(m_);
  PlanNode& made = emit(PlanOp::matmul_, register_dtype(graph_.result(node).dtype), axes);
  made.inputs[0] = a;
  made.inputs[1] = b;
  return last();
}

// A may be computed in this kernel; the cube unit reads B from memory.
int32_t Lowering::matrix_operand(const Node& node, uint32_t index) {
  const int32_t value = graph_.operands(node)[index];
  if (index == 0 && at(value) >= 0) return at(value);
  Address where;
  address(node, index, where);
  return load(where, graph_.values[static_cast<size_t>(value)].dtype,
              mask(graph_.layout(node, index)));
}

// -- results

void Lowering::store(int32_t value) {
  const GraphValue& stored = graph_.values[static_cast<size_t>(value)];
  const Node& producer = graph_.nodes[static_cast<size_t>(stored.producer)];
  int32_t node = at(value);
  if (node < 0) {  // a copy kernel stores the view that it loads
    if (!is_view(producer.op)) throw CompileError("a result of a stream has not been lowered");
    Address from;
    if (graph_.layout(producer, 0).known()) {
      address(producer, 0, from);
    } else {
      strided(producer, from);
    }
    AtomList atoms;
    for (uint32_t i = 0; i < from.count; i++) atoms.push_back(from.strides[i].atom);
    node = load(from, stored.dtype, mask(atoms));
  }
  const Place place = places_.of(graph_, value);
  Address to;
  to.root = place.root;
  to.offset = place.offset;
  add_strides(producer.result.all(), {place.strides, static_cast<size_t>(producer.result.rank)},
              to);
  const int32_t access = add_access(to);
  const uint32_t k = has_roles_ ? 1U << index_of(k_) : 0;
  const uint32_t axes = (mask(producer.result) | axes_of(node)) & ~k;
  PlanNode& made = emit(PlanOp::store_, register_dtype(stored.dtype), axes);
  made.inputs[0] = node;
  made.access = access;
}

}  // namespace dvm::stream
