// Lowers a group of operators to a kernel plan over one domain, as kernels/lower_subgraph.py does
// with symbolic dims: atoms become the axes of the domain, values become nodes that vary along some
// of them, uses of memory become affine accesses, views are gone. The dims of the plan are numbers
// of its own.
//
// Invariants: a node varies along no more axes than its operands do; the nodes are in topological
// order; loads of one place are one node. Keeps its capacity, plans too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/plan.h"
#include "stream/groups.h"

namespace dvm::stream {

// Where values lie: in whose buffer, and how.
struct Place {
  int32_t root = -1;
  int64_t offset = 0;
  int64_t strides[kMaxRank] = {};
};

class Places {
 public:
  // Every value in a buffer of its own.
  void clear(const Graph& graph);
  // A value lies where another one does.
  void alias(int32_t value, int32_t root) { roots_[static_cast<size_t>(value)] = this->root(root); }
  // An operand of a concat lies in the result, from `start` on along an axis.
  void join(int32_t value, int32_t joined, int axis, int64_t start);

  int32_t root(int32_t value) const { return roots_[static_cast<size_t>(value)]; }
  bool is_placed(int32_t value) const { return parts_[static_cast<size_t>(value)].joined >= 0; }
  // The value whose buffer it lies in, through concats.
  int32_t buffer(int32_t value) const;
  Place of(const Graph& graph, int32_t value) const;

 private:
  struct PartOf {
    int32_t joined = -1, axis = 0;
    int64_t start = 0;
  };
  std::vector<int32_t> roots_;
  std::vector<PartOf> parts_;
};

// A plan, its dims, and the values that its accesses are of.
struct Draft {
  KernelPlan plan;
  std::vector<int64_t> dims;
  std::vector<int32_t> arguments;
  std::vector<int32_t> outputs;  // what it stores
};

class Lowering {
 public:
  Lowering(Graph& graph, const Places& places)
      : graph_(graph), space_(graph.space), places_(places) {}

  // Throws UnsupportedError for more axes than a kernel has.
  void lower(const Group& group, std::span<const int32_t> outputs, Draft& out);

 private:
  struct Stride {
    Atom atom;
    int64_t stride;
  };
  struct Address {
    int32_t root = -1;
    int64_t offset = 0;
    uint32_t count = 0;
    Stride strides[24];

    void set(Atom atom, int64_t stride);
    int64_t at(Atom atom) const;
  };
  struct Load {
    int32_t argument;
    int64_t offset;
    std::array<int64_t, kMaxDomainRank> strides;
    uint32_t axes;
    int32_t node;
  };

  void order_axes(const Group& group, std::span<const int32_t> outputs);
  void order_matrix(const Node* inner, const Node& product);
  Atom contracted(const Node& product) {
    return space_.resolved(graph_.layout(product, 0).back()).front();
  }
  int index_of(Atom atom) const;
  uint32_t mask(std::span<const Atom> atoms);
  uint32_t mask(const Layout& layout) { return mask(layout.all()); }

  void add_strides(std::span<const Atom> axes, std::span<const int64_t> strides, Address& out);
  void address(const Node& node, uint32_t index, Address& out);
  void strided(const Node& node, Address& out);
  bool in_group(int32_t node) const { return inside_[static_cast<size_t>(node)] == epoch_; }

  DimSlot slot(int64_t number);
  int32_t argument(int32_t root);
  int32_t add_access(const Address& address);
  PlanNode& emit(PlanOp op, DType dtype, uint32_t axes);
  int32_t last() const { return static_cast<int32_t>(draft_->plan.nodes.size() - 1); }
  int32_t& at(int32_t value) { return at_[static_cast<size_t>(value)]; }
  uint32_t axes_of(int32_t node) const {
    return draft_->plan.nodes[static_cast<size_t>(node)].axes;
  }

  int32_t operand(const Node& node, uint32_t index);
  void check_points(const Node& node, uint32_t index);
  int32_t load(const Address& address, DType dtype, uint32_t axes);
  int32_t fill(const GraphValue& constant);
  int32_t fill_number(double scalar, int64_t integer, DType dtype);
  int32_t narrow(int32_t operand, DType dtype);

  void lower_node(const Node& node);
  void lower_view(const Node& node);
  int32_t compute(const Node& node);
  int32_t cast(const Node& node);
  int32_t iota(const Node& node);
  int32_t gather(const Node& node);
  int32_t matmul(const Node& node);
  int32_t matrix_operand(const Node& node, uint32_t index);
  void store(int32_t value);

  Graph& graph_;
  AxisSpace& space_;
  const Places& places_;
  Draft* draft_ = nullptr;
  AtomList domain_;
  std::vector<int32_t> at_;  // by value: the plan node that holds it
  std::vector<uint32_t> inside_;
  uint32_t epoch_ = 0;
  std::vector<Load> loads_;
  bool has_roles_ = false;
  Atom m_ = kNoAtom, n_ = kNoAtom, k_ = kNoAtom, inner_k_ = kNoAtom;
  // Capacity of plans that shrank.
  std::vector<PlanNode> spare_nodes_;
  std::vector<Access> spare_accesses_;
};

}  // namespace dvm::stream
