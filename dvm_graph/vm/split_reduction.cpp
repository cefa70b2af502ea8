#include "vm/split_reduction.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/numbers.h"
#include "kernels/order_axes.h"
#include "vm/workspace.h"

namespace dvm {
namespace {

constexpr int64_t kFewPoints = 8;  // parallel pieces below which cores would idle
constexpr int64_t kMostPieces = 64;
// Work of a piece over what starting the second stage costs, and of what is worth splitting.
constexpr int64_t kPieceOverStart = 2, kWorkOverStart = 4;
constexpr int64_t kElementBytes = 4;

// Roles of a node in the two plans.
constexpr uint8_t kLate = 1;   // follows a split reduction
constexpr uint8_t kSplit = 2;  // is a split reduction
constexpr uint8_t kInPartial = 4, kInJoin = 8;

class Splitter {
 public:
  Splitter(const NormalPlan& plan, SplitReduction& out) : plan_(plan), out_(out) {}

  // What is cut into pieces, from the shape alone: the outermost reduced axis or, where that is too
  // short, all of it and the next one.
  bool choose_piece(const LiveBytes& live, const Target& target) {
    const uint32_t reduced = plan_.reduced_axes();
    if (reduced == 0) return false;
    // Contiguous parallel elements that count as one point: pieces of rows of less are far apart
    // in memory.
    const int64_t run = static_cast<int64_t>(target.costs.memory_run) / kElementBytes;
    int64_t points = 1, work = 1, row = 1;  // row: beside a point and what it stands for
    for (int axis = 0; axis < plan_.rank; ++axis) {
      work *= plan_.extents[axis];
      if (reduced & bit(axis)) {
        row *= plan_.extents[axis];
        continue;
      }
      const bool inner = axis + 1 == plan_.rank;
      points *= inner ? ceil_div(plan_.extents[axis], run) : plan_.extents[axis];
      if (inner) row *= std::min(plan_.extents[axis], run);
    }
    const double start_elements = target.costs.in_vector_elements(target.costs.stage_start);
    const auto start = std::max<int64_t>(1, static_cast<int64_t>(std::lround(start_elements)));
    if (points >= kFewPoints || work < kWorkOverStart * start) return false;
    int64_t pieces = std::clamp<int64_t>(work / (kPieceOverStart * start), 2, kMostPieces);
    if (live.cached >= 0.5) {
      const auto fits =
          static_cast<int64_t>(static_cast<double>(target.vector_tile_bytes) / live.cached);
      pieces = std::max(pieces, ceil_div(row, std::max<int64_t>(fits, 1)));
    }
    if (!choose_axis(reduced, points, pieces)) return false;
    const int64_t extent = plan_.extents[axis_];
    tile_ = ceil_div(extent, std::min(pieces, extent));
    pieces_ = ceil_div(extent, tile_);
    out_.piece = {axis_, tile_};
    return pieces_ >= 2;
  }

  void build() {
    assign_roles();
    start(out_.partial);
    start(out_.join);
    out_.renumber_partial.assign(plan_.nodes.size(), -1);
    out_.renumber_join.assign(plan_.nodes.size(), -1);
    out_.workspace_bytes = 0;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (out_.roles[i] & kInPartial) copy(i, out_.partial, out_.renumber_partial);
      if (out_.roles[i] & kSplit) {
        out_.partial.nodes.back().reduce_axes &= ~whole_axes_;
        out_.partial.nodes.back().axes |= whole_axes_;
        hand_over(i);
      } else if (out_.roles[i] & kInJoin) {
        copy(i, out_.join, out_.renumber_join);
      }
    }
    shrink_join();
  }

 private:
  void start(NormalPlan& plan) const {
    plan.kind = KernelKind::vector;
    plan.rank = plan_.rank;
    plan.extents = plan_.extents;
    plan.m_axis = plan.n_axis = plan.k_axis = -1;
    plan.nodes.clear();
    plan.accesses = plan_.accesses;
    plan.windows = plan_.windows;
  }

  // `pieces` become those of the axis that is cut. Rows that are reduced pass by, however long: of
  // such a plan there need be no more pieces than cores have use for.
  bool choose_axis(uint32_t reduced, int64_t points, int64_t& pieces) {
    axis_ = std::countr_zero(reduced);
    if (!can_chunk(plan_, bit(axis_))) return false;
    const bool reduces_rows = (reduced & bit(plan_.rank - 1)) != 0;
    for (uint32_t rest = reduced & (reduced - 1); rest != 0; rest &= rest - 1) {
      const int next = std::countr_zero(rest);
      const int64_t extent = plan_.extents[axis_];
      points *= extent;
      if (extent >= pieces || (reduces_rows && points >= kFewPoints)) break;
      if (!can_chunk(plan_, whole_axes_ | bit(axis_) | bit(next))) break;
      whole_axes_ |= bit(axis_);
      pieces = ceil_div(pieces, extent);
      axis_ = next;
    }
    return true;
  }

  // The join's domain: the pieces instead of the split axis, no axes that it does not use.
  void shrink_join() {
    drop_unused_axes(out_.join);
    out_.join.extents[axis_] = pieces_;
  }

  void assign_roles() {
    std::vector<uint8_t>& roles = out_.roles;
    roles.assign(plan_.nodes.size(), 0);
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const NormalNode& node = plan_.nodes[i];
      for (const int32_t input : node.inputs) {
        if (input >= 0 && roles[input] & (kLate | kSplit)) roles[i] |= kLate;
      }
      if (node.reduce_axes & bit(axis_)) roles[i] |= kSplit | kInPartial;
      if (node.op == PlanOp::store_) roles[i] |= roles[i] & kLate ? kInJoin : kInPartial;
    }
    for (size_t i = plan_.nodes.size(); i-- > 0;) {
      for (const int32_t input : plan_.nodes[i].inputs) {
        if (input < 0) continue;
        if (roles[i] & kInPartial) roles[input] |= kInPartial;
        if (roles[i] & kInJoin && !(roles[i] & kSplit)) roles[input] |= kInJoin;
      }
    }
  }

  void copy(size_t index, NormalPlan& to, std::vector<int32_t>& renumber) const {
    NormalNode node = plan_.nodes[index];
    for (int32_t& input : node.inputs) input = input < 0 ? -1 : renumber[input];
    renumber[index] = to.add(node);
  }

  // The partial plan stores the reduction of a piece, the join plan loads and reduces all pieces.
  void hand_over(size_t index) {
    const NormalNode& split = plan_.nodes[index];
    const uint32_t piece = split.axes | whole_axes_;
    const int64_t volume = plan_.elements(piece);
    NormalAccess access = take_workspace(plan_, piece, split.dtype, out_.workspace_bytes, pieces_);
    access.step_axis = axis_;
    access.tile_step = volume;
    out_.partial.add_store(out_.renumber_partial[index], access);

    access.step_axis = -1;
    access.tile_step = 0;
    access.strides[axis_] = volume;
    NormalNode join = split;
    join.reduce_axes = whole_axes_ | bit(axis_);
    join.inputs[0] = out_.join.add_load(split.dtype, piece | bit(axis_), access);
    out_.renumber_join[index] = out_.join.add(join);
  }

  const NormalPlan& plan_;
  SplitReduction& out_;
  uint32_t whole_axes_ = 0;  // each element of which is in pieces of its own
  int axis_ = -1;
  int64_t tile_ = 0, pieces_ = 0;
};

}  // namespace

bool split_reduction(const NormalPlan& plan, const Target& target, const LiveBytes& live,
                     SplitReduction& out) {
  Splitter splitter(plan, out);
  if (!splitter.choose_piece(live, target)) return false;
  splitter.build();
  return true;
}

}  // namespace dvm
