// Normalisation: a kernel plan and the sizes of one run become a *normal plan*, the same
// computation with numbers for dim slots over the fewest axes.
//
//   - dim slots are evaluated; fills become immediate bits
//   - empty axes disappear: nodes over them are dropped, reductions and matmuls over them become
//     their identity, stores over them have nothing to write
//   - what is counted is one iota, and goes into the strides of gathers (fold_positions.h)
//   - axes of extent 1 disappear (cube and mix plans keep m, n, k and inner k)
//   - adjacent axes merge where every node and every access sees them as one
//   - an m axis of few rows gives way to a longer batch axis along which B does not vary
//   - vector plans get an axis order with reduced axes late and the axis along which most of
//     what is accessed is contiguous innermost
//
// Invariants of the result: every extent > 0; access strides are 0 along axes the node lacks; nodes
// stay in topological order.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/plan.h"

namespace dvm {

using Strides = std::array<int64_t, kMaxDomainRank>;

// A view of a buffer, or an iota (value kPlainInteger: element size 1, offset is the base).
struct NormalAccess {
  int32_t value = -1;
  DType storage = DType::f32;
  int64_t element_bytes = 4;
  int64_t value_bytes = 0;  // the whole buffer's; 0 where it has none of its own
  int64_t offset = 0;       // elements, as are the strides
  Strides strides = {};
  int step_axis = -1;        // the address also moves by `tile_step` elements with every
  int64_t tile_step = 0;     // tile of this axis (partial results of split reductions)
  int64_t gather_reach = 0;  // what an index or a window can add to the address, in elements
  bool unread = false;       // gather along an axis without elements: no index is valid
  bool packed_panels = false;
  bool transformed = false;
  int64_t block = 0;  // as in Access
  int64_t block_bits = 0, block_rows = 0;
  int64_t panel_k = 0;      // extent of k in the packed panels; 0: that of the plan
  int64_t panel_first = 0;  // the k in the panels that the plan begins with
};

struct NormalNode {
  PlanOp op = PlanOp::fill_;
  DType dtype = DType::f32;
  DType element = DType::f32;  // as in PlanNode
  DType narrow_to = DType::f32;
  bool signed_bytes = false;  // the operands, which are b8 (vm/bytes.h)
  uint32_t axes = 0;
  uint32_t reduce_axes = 0;
  int32_t inputs[3] = {-1, -1, -1};
  int32_t access = -1;      // load, store, gather, iota, windows
  int32_t weights = -1;     // depthwise, lookup: access
  int32_t numbers = -1;     // of windows: access that counts them, as that of an iota
  int32_t window = -1;      // index into NormalPlan::windows
  uint64_t immediate = 0;   // fill: the bits of the scalar
  int64_t limit = 0;        // check_index, gather
  int64_t axis_stride = 0;  // gather: elements between neighbours along the gathered axis
};

struct OpenAxis {
  int axis = -1;     // of the kernel plan; -1: there are as many as the plan says
  int64_t unit = 1;  // elements for each of that one

  bool is_open() const { return axis >= 0; }
};

struct NormalPlan {
  KernelKind kind = KernelKind::vector;
  bool weighed = false;
  int rank = 0;
  std::array<int64_t, kMaxDomainRank> extents = {};
  // Axes that may have fewer elements than that when the programs run, by the axis of the kernel
  // plan whose extent tells how many, and elements for each of it.
  std::array<OpenAxis, kMaxDomainRank> open = {};
  int m_axis = -1, n_axis = -1, k_axis = -1, inner_k_axis = -1;
  int piece_axis = -1;  // of the batch: its extent counts pieces of k (split_product.h)
  std::vector<NormalNode> nodes;
  std::vector<NormalAccess> accesses;
  std::vector<Window> windows;

  bool is_open() const;  // some axis is

  uint32_t reduced_axes() const;  // axes that some reduction folds

  // The matmul is the inner product of its plan: its columns are what the other one contracts.
  bool is_inner(const NormalNode& matmul) const { return matmul.axes >> k_axis & 1; }

  bool has_role(int axis) const {  // it is one of a product, not of the batch
    return axis == m_axis || axis == n_axis || axis == k_axis || axis == inner_k_axis;
  }

  int64_t elements(uint32_t axes) const;  // of what varies along these

  // Behind all others; returns the index.
  int32_t add(const NormalNode& node);
  int32_t add(const NormalAccess& access);
  int32_t add_load(DType dtype, uint32_t axes, const NormalAccess& from);
  int32_t add_store(int32_t input, const NormalAccess& to);
  // A node of another plan, and what it accesses there; its operands are nodes of this one.
  int32_t add_from(const NormalPlan& other, NormalNode node);
};

// `room`: by axis, more than 0 where the plan is to serve for up to so many elements, of which
// there are fewer at these dims; null: no axis is open. Returns false where there is nothing to
// write. Throws std::invalid_argument for a plan that breaks the rules of plan.h, and where there
// are more elements than can be counted.
bool normalise(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values,
               NormalPlan& out, const int64_t* room = nullptr);

// The bits of a scalar as an immediate operand of this register dtype, or of f16.
uint64_t immediate_bits(DType dtype, double scalar, int64_t integer);

}  // namespace dvm
