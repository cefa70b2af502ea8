#include "stream/graph.h"

#include <algorithm>

namespace dvm::stream {

int64_t Shape::elements() const {
  int64_t count = 1;
  for (const int64_t extent : all()) count *= extent;
  return count;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(all().begin(), all().end(), other.all().begin(), other.all().end());
}

void Graph::clear() {
  values.clear();
  nodes.clear();
  uses.clear();
  layouts.clear();
  memory.clear();
  attrs.clear();
  space.clear();
}

int32_t Graph::add_value(DType dtype, const Shape& shape) {
  GraphValue& value = values.emplace_back();
  value.dtype = dtype;
  value.shape = shape;
  return static_cast<int32_t>(values.size() - 1);
}

int32_t Graph::add_node(Op op, uint32_t operands, std::span<const int64_t> given, DType dtype,
                        const Shape& shape) {
  const int32_t value = add_value(dtype, shape);
  Node& node = nodes.emplace_back();
  values.back().producer = static_cast<int32_t>(nodes.size() - 1);
  node.op = op;
  node.kind = info_of(op).kind;
  node.value = value;
  node.operands = operands;
  node.first_operand = static_cast<uint32_t>(uses.size()) - operands;
  node.first_attr = static_cast<uint32_t>(attrs.size());
  node.attrs = static_cast<uint32_t>(given.size());
  attrs.insert(attrs.end(), given.begin(), given.end());
  layouts.resize(uses.size());
  memory.resize(uses.size());
  describe(node);
  return value;
}

AtomList Graph::reduced_atoms(const Node& node) {
  AtomList atoms;
  if (node.reduced == 0) return atoms;
  const Layout& operand = layout(node, 0);
  for (int axis = 0; axis < operand.rank; axis++) {
    if (node.reduced >> axis & 1) space.resolve(operand.axes[axis], atoms);
  }
  return atoms;
}

void Graph::describe(Node& node) {
  const Shape& shape = result(node).shape;
  switch (node.op) {
    case Op::matmul: return describe_matmul(node);
    case Op::reshape: return describe_reshape(node);
    case Op::gather: return describe_gather(node);
    case Op::transpose: {
      const Layout operand = space.layout(operand_shape(node, 0));
      layouts[node.first_operand] = operand;
      node.result.rank = operand.rank;
      for (int i = 0; i < operand.rank; i++) {
        node.result.axes[i] = operand.axes[attributes(node)[static_cast<size_t>(i)]];
      }
      return;
    }
    case Op::view:
    case Op::slice:
      node.result = space.layout(shape.all());
      memory[node.first_operand] = 1;
      return;
    case Op::iota: node.result = space.layout(shape.all()); return;
    default: break;
  }
  if (node.kind == Kind::reduce) return describe_reduce(node);
  describe_map(node);  // a broadcast, too; operands of a concat are read by nobody
}

Layout Graph::aligned(const Shape& shape, const Layout& result, std::span<const int64_t> extents) {
  Layout layout;
  layout.rank = shape.rank;
  const int skip = result.rank - shape.rank;
  for (int i = 0; i < shape.rank; i++) {
    const bool whole = shape.extents[i] == extents[static_cast<size_t>(skip + i)];
    layout.axes[i] = whole ? result.axes[skip + i] : kNoAtom;
  }
  return layout;
}

void Graph::describe_map(Node& node) {
  const Shape shape = result(node).shape;
  node.result = space.layout(shape.all());
  if (node.op == Op::concat) return;
  for (uint32_t i = 0; i < node.operands; i++) {
    layouts[node.first_operand + i] = aligned(operand(node, i).shape, node.result, shape.all());
  }
}

void Graph::describe_reduce(Node& node) {
  const Layout operand = space.layout(operand_shape(node, 0));
  layouts[node.first_operand] = operand;
  for (const int64_t axis : attributes(node)) node.reduced |= 1U << axis;
  node.result = operand;
  for (int i = 0; i < operand.rank; i++) {
    if (node.reduced >> i & 1) node.result.axes[i] = kNoAtom;
    if (operand.axes[i] != kNoAtom) node.domain[node.domain_count++] = operand.axes[i];
  }
}

void Graph::describe_matmul(Node& node) {
  const Shape extents = result(node).shape, a = operand(node, 0).shape, b = operand(node, 1).shape;
  const int rank = extents.rank, batch = rank - 2;
  const Atom m = space.atom(extents.extents[rank - 2]);
  const Atom n = space.atom(extents.extents[rank - 1], true);
  const Atom k = space.atom(a.extents[a.rank - 1], true);
  Layout outer = space.layout(extents.all().first(static_cast<size_t>(batch)));
  const auto of = [&](const Shape& shape, Atom row, Atom column) {
    Shape lead = shape;
    lead.rank = static_cast<int8_t>(lead.rank - 2);
    Layout layout = aligned(lead, outer, extents.all().first(static_cast<size_t>(batch)));
    layout.axes[layout.rank++] = row;
    layout.axes[layout.rank++] = column;
    return layout;
  };
  layouts[node.first_operand] = of(a, m, k);
  layouts[node.first_operand + 1] = of(b, k, n);
  memory[node.first_operand] = memory[node.first_operand + 1] = 1;
  node.result = outer;
  node.result.axes[node.result.rank++] = m;
  node.result.axes[node.result.rank++] = n;
  for (const Atom atom : outer.all()) {
    if (atom != kNoAtom) node.domain[node.domain_count++] = atom;
  }
  for (const Atom atom : {m, n, k}) node.domain[node.domain_count++] = atom;
}

void Graph::describe_reshape(Node& node) {
  const Layout operand = space.layout(operand_shape(node, 0));
  node.result = space.layout(result(node).shape.all());
  const size_t mark = space.mark();
  if (space.unify(operand.all(), node.result.all())) {
    layouts[node.first_operand] = operand;
    return;
  }
  space.rollback(mark);
  memory[node.first_operand] = 1;
}

void Graph::describe_gather(Node& node) {
  const Shape source = operand(node, 0).shape, index = operand(node, 1).shape;
  const auto axis = static_cast<int>(attributes(node)[0]);
  node.result = space.layout(result(node).shape.all());
  Layout read = node.result, chosen;
  read.rank = source.rank;
  read.axes[axis] = space.atom(source.extents[axis], true);
  for (int i = axis + 1; i < source.rank; i++) {
    read.axes[i] = node.result.axes[i + index.rank - 1];
  }
  chosen.rank = index.rank;
  for (int i = 0; i < index.rank; i++) chosen.axes[i] = node.result.axes[axis + i];
  layouts[node.first_operand] = read;
  layouts[node.first_operand + 1] = chosen;
  memory[node.first_operand] = 1;
}

}  // namespace dvm::stream
