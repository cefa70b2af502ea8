// The operators of one flush, and the axes of each: what groups are made of.
//
// In: basic operators (ir/operators.py) with shapes of numbers, in topological order; each view has
// one reader. Values and nodes are numbered; tables keep their capacity from flush to flush.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "stream/axes.h"
#include "stream/operators.h"

namespace dvm::stream {

inline bool holds(const std::vector<int32_t>& items, int32_t item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

struct Shape {
  int8_t rank = 0;
  int64_t extents[kMaxRank] = {};

  std::span<const int64_t> all() const { return {extents, static_cast<size_t>(rank)}; }
  int64_t elements() const;
  bool operator==(const Shape& other) const;
};

struct GraphValue {
  DType dtype = DType::f32;
  Shape shape;
  int32_t producer = -1;  // node; -1: it is in memory, or a number
  bool constant = false;  // a number
  bool wanted = false;    // somebody outside holds it
  double scalar = 0;      // of constants
  int64_t integer = 0;
  int32_t given = -1;  // what the stream calls it
};

struct Node {
  Op op;
  Kind kind;
  int32_t value = -1;
  uint32_t first_operand = 0, operands = 0;  // into Graph::uses
  uint32_t first_attr = 0, attrs = 0;        // into Graph::attrs

  // The axes (cluster/node_axes.py); of operands: Graph::layouts and Graph::memory.
  Layout result;
  uint32_t reduced = 0;      // axes of the operand
  uint8_t domain_count = 0;  // 0: that of the result
  Atom domain[kMaxRank + 3] = {};

  std::span<const Atom> iterated() const {
    return domain_count > 0 ? std::span<const Atom>(domain, domain_count) : result.all();
  }
};

struct Graph {
  std::vector<GraphValue> values;
  std::vector<Node> nodes;
  std::vector<int32_t> uses;    // operands of nodes: values
  std::vector<Layout> layouts;  // by use
  std::vector<char> memory;     // by use: it has to come from memory
  std::vector<int64_t> attrs;
  AxisSpace space;

  void clear();
  int32_t add_value(DType dtype, const Shape& shape);
  // Its operands are the last `operands` entries of `uses`; its result is new.
  int32_t add_node(Op op, uint32_t operands, std::span<const int64_t> attrs, DType dtype,
                   const Shape& shape);

  std::span<const int32_t> operands(const Node& node) const {
    return {uses.data() + node.first_operand, node.operands};
  }
  std::span<const int64_t> attributes(const Node& node) const {
    return {attrs.data() + node.first_attr, node.attrs};
  }
  const GraphValue& operand(const Node& node, uint32_t index) const {
    return values[static_cast<size_t>(uses[node.first_operand + index])];
  }
  const Layout& layout(const Node& node, uint32_t index) const {
    return layouts[node.first_operand + index];
  }
  const GraphValue& result(const Node& node) const {
    return values[static_cast<size_t>(node.value)];
  }
  bool from_memory(const Node& node, uint32_t index) const {
    return memory[node.first_operand + index] != 0;
  }
  std::span<const int64_t> operand_shape(const Node& node, uint32_t index) const {
    return operand(node, index).shape.all();
  }
  AtomList reduced_atoms(const Node& node);

 private:
  void describe(Node& node);
  Layout aligned(const Shape& shape, const Layout& result, std::span<const int64_t> extents);
  void describe_map(Node& node);
  void describe_reduce(Node& node);
  void describe_matmul(Node& node);
  void describe_reshape(Node& node);
  void describe_gather(Node& node);
};

}  // namespace dvm::stream
