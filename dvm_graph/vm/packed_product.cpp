#include "vm/packed_product.h"

#include <algorithm>

#include "kernels/numbers.h"
#include "kernels/transforms.h"
#include "vm/block_cost.h"
#include "vm/panels.h"

namespace dvm {
namespace {

bool is_batch(const CubeProblem& problem, const NormalAccess& b, int axis) {
  return !problem.plan().has_role(axis) && b.strides[axis] != 0;
}

// Of the tiles, what packing takes as the plan is.
double packing_within(const CubeProblem& problem, const CubeTerms& terms) {
  const BlockProblem& blocks = problem.blocks();
  const BlockShape& shape = problem.shape();
  const int64_t m_blocks = ceil_div(blocks.m, shape.rows);
  const int64_t tiles = blocks.batch * m_blocks * ceil_div(blocks.n, shape.columns);
  const int64_t uses = shape.keep_b ? m_blocks * blocks.batch / blocks.b_batch : 1;
  return static_cast<double>(tiles * shape.columns * blocks.k) * terms.pack /
         static_cast<double>(uses * problem.target().cores);
}

// Of a stage that packs as many elements to panels with rows for so many.
double packing_before(double elements, double rows, const CubeProblem& problem,
                      const CubeTerms& terms) {
  constexpr double kTransformOperations = 2;  // for each element of a transform
  const Target& target = problem.target();
  const double bytes = rows * static_cast<double>(problem.blocks().element_bytes);
  const bool near = bytes <= static_cast<double>(target.local_bytes * target.cores);
  // Transforms want whole panels.
  const int64_t panels =
      problem.blocks().b_batch * ceil_div(problem.blocks().n, problem.blocks().columns_per_panel);
  const int64_t cores = rows > elements ? std::min<int64_t>(panels, target.cores) : target.cores;
  const double each = elements * (terms.pack + (near ? terms.near : terms.far)) +
                      (rows - elements) * terms.vector_operation * kTransformOperations +
                      rows * (near ? terms.write_near : terms.write_far);
  return each / static_cast<double>(cores) + terms.stage_start;
}

bool may_pack(const CubeProblem& problem) {
  const Product& product = problem.outer();
  const NormalPlan& plan = problem.plan();
  if (!problem.possible() || problem.shape().rows == 0 || problem.has_inner()) return false;
  if (problem.beside().size() > 1 || problem.bundle() > 1 || product.panels) return false;
  if (!problem.target().unified_memory || !product.pack_b) return false;
  int users = 0;
  for (const NormalNode& node : plan.nodes) users += std::ranges::count(node.inputs, product.b);
  return users == 1;
}

// B as panels at the begin of the workspace, its matrices one behind the other.
NormalAccess packed_access(const CubeProblem& problem, const NormalAccess& from, bool transformed) {
  const NormalPlan& plan = problem.plan();
  const Product& product = problem.outer();
  NormalAccess to;
  to.value = kWorkspace;
  to.storage = problem.dtype();
  to.element_bytes = problem.blocks().element_bytes;
  to.packed_panels = true;
  to.transformed = transformed;
  to.panel_k = product.k * (to.transformed ? kTransformedRows : 1);
  to.strides[product.n_axis] = 1;
  to.strides[product.k_axis] = product.n;
  int64_t matrix = to.panel_k * product.n;
  for (int axis = plan.rank - 1; axis >= 0; --axis) {
    if (!is_batch(problem, from, axis)) continue;
    to.strides[axis] = matrix;
    matrix *= plan.extents[axis];
  }
  return to;
}

std::optional<CubeProblem> pack(const CubeProblem& problem, bool transformed, PackedProduct& out) {
  const Target& target = problem.target();
  const CubeTerms terms(target);
  const Product& product = problem.outer();
  const NormalPlan& plan = problem.plan();
  const int64_t matrices = problem.blocks().b_batch;
  out.from = problem.access_of(product.b);
  out.to = packed_access(problem, out.from, transformed);
  const double before =
      packing_before(static_cast<double>(matrices * product.k * product.n),
                     static_cast<double>(matrices * out.to.panel_k * product.n), problem, terms);
  const bool patches = plan.nodes[product.a].op == PlanOp::patches_;
  if (!patches && packing_within(problem, terms) <= before) return std::nullopt;
  out.plan = plan;
  out.plan.nodes[product.b].access = out.plan.add(out.to);
  out.workspace_bytes = packed_bytes(out.to.panel_k, product.n, matrices, problem.dtype(), target);
  std::optional<CubeProblem> packed(std::in_place, out.plan, target);
  const bool less = packed->shape().rows > 0 && packed->cost() + before < problem.cost();
  if (!less || packed->windows().transformed != transformed) return std::nullopt;
  return packed;
}

}  // namespace

std::optional<CubeProblem> pack_product(const CubeProblem& problem, PackedProduct& out) {
  if (!may_pack(problem)) return std::nullopt;
  if (problem.access_of(problem.outer().b).transformed) {
    if (auto packed = pack(problem, true, out)) return packed;
  }
  return pack(problem, false, out);
}

namespace {

constexpr int64_t kLeastTiles = 4;  // of a core, where there is so much

class PackingLowering {
 public:
  PackingLowering(const PackedProduct& product, const CubeProblem& problem, TileCode& code)
      : product_(product),
        problem_(problem),
        b_(problem.outer()),
        code_(code),
        columns_(problem.blocks().columns_per_panel),
        bytes_(problem.blocks().element_bytes) {}

  void run() {
    lay_out_grid();
    TileInstruction& pack = code_.instructions.emplace_back(kNoInstruction);
    pack.family = product_.to.transformed ? Family::d_pack_b_transformed : Family::d_pack_b;
    pack.extents[0] = code_.extent_register(product_.to.transformed ? slices() : 1, -1);
    pack.dtype = product_.from.storage;
    pack.extents[1] = code_.extent_of(b_.k_axis);
    pack.extents[2] = code_.extent_of(b_.n_axis);
    pack.operand_count = 2;
    TileOperand& to = pack.operands[0];
    to.space = Space::pointer;
    to.index = code_.pointer_register(panels());
    to.outer = code_.stride(product_.to.panel_k * columns_);
    to.middle = static_cast<int32_t>(columns_);
    to.inner = 1;
    TileOperand& from = pack.operands[1];
    from.space = Space::pointer;
    from.index = code_.pointer_register(pointer_of(product_.from, code_.space, 0));
    from.middle = code_.stride(product_.from.strides[b_.k_axis]);
    from.inner = code_.stride(product_.from.strides[b_.n_axis]);
  }

 private:
  // Tiles are rows of B where those are contiguous, else whole panels, as transforms want them.
  void lay_out_grid() {
    const NormalPlan& plan = problem_.plan();
    TileSpace& space = code_.space;
    space.rank = plan.rank;
    for (int axis = 0; axis < plan.rank; ++axis) {
      space.axes[axis] = {is_batch(problem_, product_.from, axis) ? plan.extents[axis] : 1, 1, -1};
      code_.add_dim(axis);
    }
    const bool by_rows = product_.from.strides[b_.n_axis] == 1 && !product_.to.transformed;
    const int64_t length = by_rows ? b_.n : product_.to.panel_k * columns_;
    const int64_t lines = by_rows ? b_.k : ceil_div(b_.n, columns_);
    const Target& target = problem_.target();
    const int64_t room = std::max<int64_t>(1, target.local_bytes / 4 / bytes_ / length);
    const int64_t share = ceil_div(lines * problem_.blocks().b_batch, kLeastTiles * target.cores);
    const int64_t tile = std::min({room, share, lines});
    space.axes[b_.k_axis] = {b_.k, by_rows ? tile : b_.k, -1};
    space.axes[b_.n_axis] = {b_.n, by_rows ? b_.n : std::min(tile * columns_, b_.n), -1};
    code_.add_dim(b_.k_axis);
    code_.add_dim(b_.n_axis);
    code_.chunk_dim = static_cast<int>(code_.grid.size());
  }

  PointerRegister panels() const {
    const int64_t panel = product_.to.panel_k * columns_ * bytes_;
    PointerRegister pointer;
    pointer.buffer = kWorkspace;
    pointer.high = product_.workspace_bytes;
    int64_t matrix = ceil_div(b_.n, columns_) * panel;
    for (int axis = code_.space.rank - 1; axis >= 0; --axis) {
      const TileAxis& a = code_.space.axes[axis];
      if (a.dim < 0) continue;
      int64_t& step = pointer.steps[a.dim];
      if (axis == b_.k_axis) {
        step = a.tile * columns_ * bytes_;
      } else if (axis == b_.n_axis) {
        step = a.tile / columns_ * panel;
      } else {
        step = matrix;
        matrix *= a.whole;
      }
    }
    return pointer;
  }

  // Of 3 x 3 taps, that k is.
  int64_t slices() const {
    const NormalPlan& plan = problem_.plan();
    return plan.windows[plan.nodes[b_.a].window].kernel_depth;
  }

  const PackedProduct& product_;
  const CubeProblem& problem_;
  const Product& b_;
  TileCode& code_;
  const int64_t columns_, bytes_;
};

}  // namespace

void lower_packing(const PackedProduct& product, const CubeProblem& problem, TileCode& code) {
  PackingLowering(product, problem, code).run();
}

}  // namespace dvm
