#include "vm/short_rows.h"

#include "kernels/numbers.h"
#include "kernels/order_axes.h"
#include "vm/lower.h"
#include "vm/strips.h"

namespace dvm {
namespace {

constexpr int64_t kMostVectors = 4;  // of a row: longer ones are passed over as fast as turned
constexpr int kLeastPasses = 3;      // over rows: turning them takes as long as about two
constexpr int64_t kElementBytes = 4;

// The axis that rows along the innermost one lie along, one behind the other; -1: none, or
// something is read or written in another way.
int axis_of_rows(const NormalPlan& plan, int inner) {
  int rows = -1;
  for (const NormalNode& node : plan.nodes) {
    if (node.access < 0) continue;
    const Strides& strides = plan.accesses[node.access].strides;
    if (node.op == PlanOp::iota_ || strides[inner] == 0) continue;
    if (node.op != PlanOp::load_ || strides[inner] != 1) return -1;
    for (int axis = 0; axis < plan.rank; ++axis) {
      if (axis == inner || strides[axis] != plan.extents[inner]) continue;
      if (rows >= 0 && rows != axis) return -1;
      rows = axis;
    }
  }
  return rows;
}

// Instructions that go over each row, those but once that run together (strips.h).
int passes_over(const NormalPlan& plan, int inner) {
  int passes = 0;
  for (const NormalNode& node : plan.nodes) {
    const PlanOpInfo& info = info_of(node.op);
    if (!((node.axes | node.reduce_axes) & bit(inner)) || info.arity == 0) continue;
    if (info.kind != PlanOpKind::map && info.kind != PlanOpKind::reduce) continue;
    const DType dtype = plan.nodes[node.inputs[0]].dtype;
    if (!joins(family_of(plan, node), dtype)) ++passes;
  }
  return passes;
}

}  // namespace

void turn_short_rows(NormalPlan& plan, const Target& target) {
  const int inner = plan.rank - 1;
  if (!target.unified_memory || inner < 1 || !plan.windows.empty()) return;
  if (!(plan.reduced_axes() & bit(inner))) return;
  const int64_t lanes = target.vector_bytes / kElementBytes;
  if (plan.extents[inner] >= kMostVectors * lanes) return;
  const int rows = axis_of_rows(plan, inner);
  if (rows < 0 || plan.extents[rows] < kMostVectors * lanes) return;
  if ((plan.reduced_axes() & bit(rows)) || passes_over(plan, inner) < kLeastPasses) return;
  int order[kMaxDomainRank];
  int count = 0;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (axis != rows) order[count++] = axis;
  }
  order[count++] = rows;
  reorder_axes(plan, order, count);
}

}  // namespace dvm
