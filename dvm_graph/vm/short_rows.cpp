#include "vm/short_rows.h"

#include <algorithm>
#include <bit>

#include "kernels/numbers.h"
#include "kernels/order_axes.h"
#include "vm/lower.h"
#include "vm/strips.h"

namespace dvm {
namespace {

constexpr int64_t kMostVectors = 4;  // of a row: longer ones are passed over as fast as turned
constexpr int kPassesOfTurn = 2;     // over rows, in the time that turning them takes
constexpr int kLeastPasses = kPassesOfTurn + 1;
constexpr int64_t kFewVectors = 2;  // of a row: the last one is half empty, and a pass over fewer
                                    // takes longer to begin than to run
constexpr int64_t kElementBytes = 4;

// Where rows along the innermost axis lie.
struct Rows {
  int axis = -1;   // they lie along it, one behind the other; -1: none, or not all that is read or
                   // written knows the same one
  int turned = 0;  // loads, stores and gathers that would turn them
  bool loads = true;  // and these are loads, all
};

Rows rows_along(const NormalPlan& plan, int inner) {
  Rows rows;
  const NormalAccess* across = nullptr;
  const auto lies_along = [&rows](int axis) {
    const bool same = rows.axis < 0 || rows.axis == axis;
    rows.axis = axis;
    return same;
  };
  for (const NormalNode& node : plan.nodes) {
    if (node.access < 0) continue;
    const Strides& strides = plan.accesses[node.access].strides;
    if (node.op == PlanOp::iota_ || strides[inner] == 0) continue;
    const bool stores = node.op == PlanOp::store_, gathers = node.op == PlanOp::gather_;
    if (!stores && !gathers && node.op != PlanOp::load_) return {};
    if (strides[inner] != 1) {  // they are turned as they lie in memory
      const bool unlike = across != nullptr && across->strides != strides;
      if (gathers || unlike) return {};
      across = &plan.accesses[node.access];
      rows.loads = false;
      continue;
    }
    bool found = false;
    if (gathers) {
      const uint32_t picked = plan.nodes[node.inputs[0]].axes;
      if (std::popcount(picked) != 1 || picked == bit(inner)) return {};
      if (!lies_along(std::countr_zero(picked))) return {};
      found = true;
    }
    for (int axis = 0; axis < plan.rank && !gathers; ++axis) {
      if (axis == inner || strides[axis] != plan.extents[inner]) continue;
      if (!lies_along(axis)) return {};
      found = true;
    }
    if (stores && !found) return {};
    rows.turned += found;
    rows.loads &= !stores;
  }
  const bool lie_so = across == nullptr || (rows.axis >= 0 && across->strides[rows.axis] == 1);
  return lie_so ? rows : Rows{};
}

// Instructions that go over each row, those but once that run together (strips.h). Where rows are
// short, nothing that folds them, or that meets one number for each of them or another row again
// and again, is taken to run together: it begins anew with each.
int passes_over(const NormalPlan& plan, int inner, int rows, bool shorter) {
  const uint32_t both = bit(inner) | bit(rows);
  int passes = 0;
  for (const NormalNode& node : plan.nodes) {
    const PlanOpInfo& info = info_of(node.op);
    const uint32_t axes = node.axes | node.reduce_axes;
    if (!(axes & bit(inner)) || info.arity == 0) continue;
    if (info.kind != PlanOpKind::map && info.kind != PlanOpKind::reduce) continue;
    bool unlike = (node.reduce_axes & bit(inner)) != 0;
    for (const int32_t input : node.inputs) {
      if (input < 0 || plan.nodes[input].op == PlanOp::fill_) continue;
      unlike |= (plan.nodes[input].axes & both) != (axes & both);
    }
    const DType dtype = plan.nodes[node.inputs[0]].dtype;
    if ((shorter && unlike) || !joins(family_of(plan, node), dtype)) ++passes;
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
  const auto [rows, turned, loads] = rows_along(plan, inner);
  if (rows < 0 || plan.extents[rows] < kMostVectors * lanes) return;
  const bool shorter = plan.extents[inner] < kFewVectors * lanes;
  if ((plan.reduced_axes() & bit(rows)) || !(shorter || loads)) return;
  const int least = std::max(kLeastPasses, kPassesOfTurn * turned);
  if (passes_over(plan, inner, rows, shorter) < least) return;
  int order[kMaxDomainRank];
  int count = 0;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (axis != rows) order[count++] = axis;
  }
  order[count++] = rows;
  reorder_axes(plan, order, count);
}

}  // namespace dvm
