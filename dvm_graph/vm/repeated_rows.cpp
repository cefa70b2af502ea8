#include "vm/repeated_rows.h"

#include <bit>

#include "kernels/numbers.h"

namespace dvm {
namespace {

// The axes along which the access has other elements; false: not all of those lie side by side.
bool is_dense(const NormalPlan& plan, const NormalAccess& access, uint32_t& axes) {
  int64_t stride = 1;
  for (int axis = plan.rank - 1; axis >= 0; --axis) {
    if (plan.extents[axis] == 1 || access.strides[axis] == 0) continue;
    if (access.strides[axis] != stride) return false;
    axes |= bit(axis);
    stride *= plan.extents[axis];
  }
  return true;
}

}  // namespace

RepeatedRows repeated_rows(const NormalPlan& plan, const Target& target) {
  if (!target.unified_memory || plan.nodes.size() != 2 || plan.is_open()) return {};
  const NormalNode &load = plan.nodes[0], &store = plan.nodes[1];
  if (load.op != PlanOp::load_ || store.op != PlanOp::store_) return {};
  const NormalAccess &from = plan.accesses[load.access], &to = plan.accesses[store.access];
  uint32_t read = 0, written = 0;
  if (from.storage != load.dtype || to.storage != load.dtype) return {};
  if (!is_dense(plan, from, read) || !is_dense(plan, to, written)) return {};
  const int64_t least = kLeastLines * target.line_bytes / to.element_bytes;
  const uint32_t repeats = written & ~read;
  int64_t elements = 1;  // of a row
  int axis = plan.rank;
  while (axis > 0 && elements < least) elements *= plan.extents[--axis];
  if (std::popcount(repeats) < 2 || repeats < bit(axis)) return {};
  return {axis, repeats};
}

}  // namespace dvm
