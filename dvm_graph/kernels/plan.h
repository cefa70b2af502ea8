// The shape-generic kernel plan: what Python's `kernels/` lowers a fused subgraph to, once per
// model, and what the run-time compiler (vm/) turns into bytecode for the shape at hand.
//
// A plan has ONE iteration space, its *domain*: axes 0..rank-1, outermost first. Every node varies
// along a subset of the axes (`axes`, bit a = axis a); along the others it is one broadcast value.
// Ranks, implicit broadcasting, transposes and keepdims are gone: Python aligned every operand to
// the domain, and views of global memory are affine (`Access`).
//
// Buffers do not overlap, but for one case (runtime/in_place.h): a value may lie where another one
// did that loads read at the very points of its store, on all axes; no node behind the stored one
// rests on such a load. So what is stored in a tile comes behind the nodes before it, no tile reads
// points of such a load but its own, and none is computed twice.
//
// Sizes are *dim slots*: indices into the model's table of dim expressions, which the executor
// evaluates once per run into int64 values.
//
// Cube and mix plans: the domain is (batch axes..., m, n, k), and one matmul node is the product of
// the kernel: its A input varies along (some batch, m, k), its B input, a load, along (some batch,
// k, n), its result along (batch, m, n). What A is computed from is its prologue, which may reduce
// along k; nodes after the product are its epilogue, which may reduce along n, may use what the
// prologue reduced, and never varies along k. `m_axis, n_axis, k_axis` name the roles. All products
// of a kernel have one `narrow_to`.
//
// There may be several such products, side by side: of one A input, a load, and with a B of its own
// each (the gates of an LSTM). Nodes behind one of them may read the others.
//
// The prologue may hold a matmul node of its own, the *inner product* (attention: the scores): its
// A input varies along (some batch, m, inner k) and may have a prologue, too, its B input is a load
// along (some batch, inner k, k), its result varies along (some batch, m, k), which tells it from
// the product. The domain then ends in
// (..., m, n, k, inner k), and `inner_k_axis` names the last.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/window.h"

namespace dvm {

using DimSlot = int32_t;
inline constexpr DimSlot kNoSlot = -1;
inline constexpr int kMaxDomainRank = 12;
inline constexpr int kMaxProducts = 4;  // side by side

enum class PlanOp : uint8_t {
#define DVM_PLAN_OP(name, kind, arity) name##_,
#include "kernels/ops.def"
#undef DVM_PLAN_OP
  count_
};

enum class PlanOpKind : uint8_t { access, map, reduce, matrix };

struct PlanOpInfo {
  PlanOpKind kind;
  uint8_t arity;
};
inline constexpr PlanOpInfo kPlanOps[] = {
#define DVM_PLAN_OP(name, kind, arity) {PlanOpKind::kind, arity},
#include "kernels/ops.def"
#undef DVM_PLAN_OP
};
constexpr const PlanOpInfo& info_of(PlanOp op) { return kPlanOps[static_cast<int>(op)]; }
constexpr bool is_reduce(PlanOp op) { return info_of(op).kind == PlanOpKind::reduce; }
constexpr bool touches_memory(PlanOp op) { return info_of(op).kind == PlanOpKind::access; }
const char* name_of(PlanOp op);
// Reads channels-last images by windows.
constexpr bool is_window(PlanOp op) { return op >= PlanOp::pool_max_ && op <= PlanOp::patches_; }
PlanOp plan_op_from_name(const std::string& name);  // throws std::invalid_argument

// element address = offset + sum over axes of coordinate[axis] * strides[axis], in elements of the
// value's storage dtype. A stride slot may be kNoSlot (stride 0). Strides may be negative.
struct Access {
  int32_t value = -1;            // index into a table of values: the model's or a call's
  DimSlot offset = kNoSlot;      // kNoSlot: 0
  std::vector<DimSlot> strides;  // one per domain axis
  bool packed_panels = false;    // B operand of a matmul, packed once at load (constants only)
  int32_t block = 0;             // of panels of levels: steps of k that share a scale; else 0
  int32_t block_bits = 0;        // of a level
  int32_t block_rows = 0;        // and the rows of words that such a block is (vm/panels.h)
  bool transformed = false;      // panels hold transforms, too, or may (kernels/transforms.h)

  bool operator==(const Access&) const = default;
};

struct PlanNode {
  PlanOp op;
  DType dtype;                       // register dtype of the result (store: of its input)
  DType element = DType::f32;        // f16, bf16: of a tensor of that dtype; f32: of any other
  uint32_t axes = 0;                 // domain axes along which the result varies
  int32_t inputs[3] = {-1, -1, -1};  // earlier nodes of this plan; gather: its index
  int32_t access = -1;               // of memory: index into KernelPlan::accesses; of windows over
                                     // images: where the first pixel of image 0 lies
  int32_t weights = -1;              // depthwise: access of the first weights; lookup: of the table
  uint32_t reduce_axes = 0;          // reductions
  DType narrow_to = DType::f32;      // narrow: the storage dtype; matmul: bf16 where the operands
                                     // are rounded to it before they are multiplied, i8 where A
                                     // is, with a scale for each block of B, f32 otherwise; one of
                                     // i32 multiplies low bytes: u8 of A by i8 of B
  double scalar = 0;                 // fill of a floating dtype
  int64_t integer = 0;               // fill of an integer or b8 dtype
  DimSlot limit = kNoSlot;           // check_index: number of valid indices; gather: axis extent
  DimSlot offset = kNoSlot;          // iota: base; gather: stride of the gathered axis, in elements
  std::vector<DimSlot> strides;      // iota: one per domain axis (kNoSlot: 0); of windows: how the
                                     // number of the window follows the axes
  std::vector<DimSlot> window;       // of windows: the first kWindowSizes fields of Window

  bool operator==(const PlanNode&) const = default;
};

enum class KernelKind : uint8_t { vector, cube, mix };

struct KernelPlan {
  std::string name;  // deterministic, e.g. "k12_layer_norm"
  KernelKind kind = KernelKind::vector;
  std::vector<DimSlot> extents;  // one per domain axis
  std::vector<PlanNode> nodes;   // topological order; at least one store
  std::vector<Access> accesses;
  int m_axis = -1, n_axis = -1, k_axis = -1;  // cube and mix only
  int inner_k_axis = -1;                      // with an inner product only
  // Its rows stay in local memory, and it has a fallback that keeps them in global memory: the one
  // that is predicted to be faster runs.
  bool weighed = false;

  bool operator==(const KernelPlan&) const = default;
};

// In place of the index of a value: none, what is accessed are the numbers of an iota.
inline constexpr int32_t kPlainInteger = -1;

// What the executor tells the compiler about a value, besides its address at launch.
struct ValueInfo {
  DType dtype = DType::f32;
  int64_t bytes = 0;  // size of the buffer for this run
};

}  // namespace dvm
