#include "vm/pair.h"

#include <algorithm>

#include "kernels/numbers.h"
#include "vm/lower.h"

namespace dvm {

int64_t lanes_of(const Target& target) {
  if (target.cube_cores == 0 || target.cores % target.cube_cores != 0) return 0;
  return target.cores / target.cube_cores;
}

bool plan_rings(const ProductProblem& problem, const ProductBlock& block, const Target& target,
                ProgramHeader& header) {
  const int64_t lanes = lanes_of(target);
  const int64_t of_rows = problem.from_ring ? problem.to_ring ? lanes / 2 : lanes : 0;
  const int64_t of_sums = problem.to_ring ? lanes - of_rows : 0;
  if (problem.to_ring) {
    if (of_sums == 0) return false;
    Ring& sums = header.ring(Handed::sums);
    sums.slots = static_cast<uint8_t>(std::max<int64_t>(of_sums, 2));
    sums.lanes = static_cast<uint8_t>(of_sums);
    sums.bytes = slot_bytes(block);
  }
  if (problem.from_ring) {
    if (of_rows == 0) return false;
    Ring& rows = header.ring(Handed::rows);
    rows.slots = static_cast<uint8_t>(kRowSlots);
    rows.first_lane = static_cast<uint8_t>(of_sums);
    rows.lanes = static_cast<uint8_t>(of_rows);
    rows.bytes = block.rows * row_of_slot(problem, target) * problem.element_bytes;
    const int64_t blocks = ceil_div(problem.n, block.columns);
    if (blocks > INT32_MAX) return false;
    header.line_blocks = static_cast<int32_t>(blocks);
  }
  return true;
}

bool tile_pieces(NormalPlan& epilogue, int64_t ring_first, const ProductBlock& block,
                 int64_t pieces, TileCode& code, ProgramHeader& header) {
  const int m = epilogue.m_axis, n = epilogue.n_axis;
  const int outer = block.rows_outer ? m : n, inner = block.rows_outer ? n : m;
  const int64_t along = block.rows_outer ? block.columns : block.rows;
  if (along % pieces != 0) return false;
  NormalAccess& sums = epilogue.accesses[0];
  sums.offset = ring_first / sums.element_bytes;
  sums.strides = {};
  sums.strides[m] = block.columns;
  sums.strides[n] = 1;
  code.space.rank = epilogue.rank;
  for (int axis = 0; axis < epilogue.rank; ++axis)
    code.space.axes[axis] = {epilogue.extents[axis], 1, -1};
  const auto cut = [&](int axis, int64_t tile) {
    code.space.axes[axis].tile = std::min(tile, epilogue.extents[axis]);
  };
  cut(outer, block.rows_outer ? block.rows : block.columns);
  cut(inner, along / pieces);
  for (int axis = 0; axis < epilogue.rank; ++axis) {
    if (axis != m && axis != n) code.add_dim(axis);
  }
  code.add_dim(outer);
  code.add_dim(inner);
  code.chunk_dim = static_cast<int>(code.grid.size());
  header.pieces = pieces;
  header.line_tiles = code.space.axes[inner].dim < 0 ? 1 : code.grid.back().count;
  return !code.overflow;
}

bool tile_rows(NormalPlan& prologue, int64_t ring_first, const ProductProblem& problem,
               const ProductBlock& block, const Target& target, int64_t rows, int64_t depth,
               TileCode& code, ProgramHeader& header) {
  const int m = prologue.m_axis, k = prologue.k_axis;
  for (const NormalNode& node : prologue.nodes) {
    if (node.op != PlanOp::store_) continue;
    NormalAccess& slot = prologue.accesses[node.access];
    slot.offset = ring_first / slot.element_bytes;
    slot.strides = {};
    slot.strides[m] = row_of_slot(problem, target);
    slot.strides[k] = 1;
  }
  code.space.rank = prologue.rank;
  for (int axis = 0; axis < prologue.rank; ++axis)
    code.space.axes[axis] = {prologue.extents[axis], 1, -1};
  code.space.axes[m].tile = std::min(rows, problem.m);
  code.space.axes[k].tile = std::min(depth, problem.k);
  for (int axis = 0; axis < prologue.rank; ++axis) {
    if (axis != m && axis != k) code.add_dim(axis);
  }
  code.add_dim(m);
  code.add_dim(k);
  code.chunk_dim = static_cast<int>(code.grid.size());
  const int64_t parts = ceil_div(problem.k, depth);
  header.pieces = block.rows / rows * parts;
  header.line_tiles = ceil_div(problem.m, rows) * parts;
  const int64_t least = (header.line_tiles - 1) % header.pieces + 1;
  return !code.overflow && least >= header.ring(Handed::rows).lanes;
}

bool enter_ring(const Target& target, Handed handed, int64_t ring_first, TileCode& code,
                ProgramHeader& header) {
  Ring& ring = header.ring(handed);
  // Dims that move within a slot: the chunks, or those of the line that is cut into pieces.
  int inner = header.beside_cube() ? static_cast<int>(code.grid.size()) : code.chunk_dim;
  for (int64_t line = 1; line < header.line_tiles; line *= code.grid[inner].count) --inner;
  for (size_t p = 0; p < code.pointers.size(); ++p) {
    PointerRegister& pointer = code.pointers[p];
    if (pointer.buffer != kWorkspace || pointer.low != ring_first) continue;
    if (ring.pointers == 0) ring.pointer = static_cast<uint8_t>(p + 1);
    ++ring.pointers;
    if (!ring.reaches(p)) return false;
    for (int d = 0; d < inner; ++d) pointer.steps[d] = 0;
    pointer.high = pointer.low + target.cube_cores * ring.slots * ring.bytes;
  }
  return ring.exists();
}

namespace {

// Of a vector instruction, in those of f32 that take a cycle for each repeat.
double operations(const NormalPlan& plan, const NormalNode& node, const Target& target) {
  const Family family = family_of(plan, node);
  size_t widest = size_of(node.dtype);
  for (const int32_t input : node.inputs) {
    if (input >= 0) widest = std::max(widest, size_of(plan.nodes[input].dtype));
  }
  const double cycles = family == Family::count_ ? 1 : target.cycles[static_cast<size_t>(family)];
  return cycles * static_cast<double>(widest) / sizeof(float);
}

}  // namespace

LaneCost lane_cost(const NormalPlan& plan, uint32_t axes, const Target& target) {
  LaneCost cost;
  double loaded = 0, stored = 0, computed = 0, elements = 1;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (axes & bit(axis)) elements *= static_cast<double>(plan.extents[axis]);
  }
  for (const NormalNode& node : plan.nodes) {
    double share = 1;  // of the elements
    for (int axis = 0; axis < plan.rank; ++axis) {
      if (axes & ~node.axes & bit(axis)) share /= static_cast<double>(plan.extents[axis]);
    }
    if (node.access < 0) {
      const bool reduces = info_of(node.op).kind == PlanOpKind::reduce;
      if (node.op != PlanOp::fill_)
        computed += operations(plan, node, target) * (reduces ? 1 : share);
      continue;
    }
    const NormalAccess& access = plan.accesses[node.access];
    const bool stores = node.op == PlanOp::store_;
    const double bytes = share * static_cast<double>(access.element_bytes);
    const Costs& costs = target.costs;
    const bool in_ring = access.value == kWorkspace && access.strides == Strides{};
    const bool stays = access.value == kWorkspace &&
                       bytes * elements <= kHeld * static_cast<double>(target.shared_bytes);
    const bool here = in_ring || stays;  // in the cache
    (stores ? stored : loaded) += bytes / (here     ? costs.core_transfer
                                           : stores ? costs.memory_write
                                                    : costs.memory_read);
    if (!here && !stores) cost.memory_bytes += bytes;
  }
  computed /= target.costs.epilogue_elements;
  cost.seconds = std::max({loaded, stored, computed});
  cost.alone = loaded + stored + computed;
  return cost;
}

}  // namespace dvm
