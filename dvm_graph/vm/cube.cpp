#include "vm/cube.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "vm/block_shape.h"
#include "vm/panels.h"

namespace dvm {
namespace {

constexpr uint32_t bit(int axis) { return 1u << axis; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

class CubeLowering {
 public:
  CubeLowering(const NormalPlan& plan, const Target& target, TileCode& code,
               LoweringScratch& scratch)
      : plan_(plan), target_(target), code_(code), scratch_(scratch) {
    for (size_t i = 0; i < plan.nodes.size(); ++i) {
      if (plan.nodes[i].op != PlanOp::matmul_) continue;
      if (matmul_ >= 0) throw std::invalid_argument("a cube kernel holds two matmuls");
      matmul_ = static_cast<int32_t>(i);
    }
    if (matmul_ < 0) throw std::invalid_argument("a cube kernel holds no matmul");
    a_ = plan.nodes[matmul_].inputs[0];
    b_ = plan.nodes[matmul_].inputs[1];
    dtype_ = plan.nodes[matmul_].dtype;
  }

  bool run(double shrink) {
    if (plan_.nodes[b_].op != PlanOp::load_ || !describe()) return false;
    const auto local = static_cast<int64_t>(static_cast<double>(target_.local_bytes) * shrink);
    shape_ = choose_block(problem_, target_, local);
    if (shape_.rows == 0) return false;
    lay_out_grid();
    if (code_.overflow) return false;
    Lowering lowering(plan_, target_, code_, scratch_, 0);
    if (problem_.whole_k) compute_a(lowering);
    NodeState& c = lowering.state(matmul_);
    c.lowered = true;
    c.dims = code_.space.dims_of(plan_.nodes[matmul_].axes);
    c.value = lowering.place_for(matmul_, false);
    emit_blocks(lowering);
    lowering.lower_all();
    return !code_.overflow;
  }

 private:
  const NormalAccess& access_of(int32_t node) const {
    return plan_.accesses[plan_.nodes[node].access];
  }

  bool storage_is_register(int32_t node) const { return access_of(node).storage == dtype_; }

  // Fills in the problem; false for plans that cube kernels cannot do.
  bool describe() {
    problem_.m = plan_.extents[plan_.m_axis];
    problem_.n = plan_.extents[plan_.n_axis];
    problem_.k = plan_.extents[plan_.k_axis];
    for (int axis = 0; axis < plan_.rank; ++axis) {
      if (axis != plan_.m_axis && axis != plan_.n_axis && axis != plan_.k_axis) {
        problem_.batch *= plan_.extents[axis];
      }
    }
    problem_.element_bytes = static_cast<int64_t>(size_of(dtype_));
    problem_.columns_per_panel = panel_columns(dtype_, target_);
    describe_operands();
    int direct_stores = 0, consumers = 0;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const NormalNode& node = plan_.nodes[i];
      for (const int32_t input : node.inputs) {
        if (input != matmul_) continue;
        ++consumers;
        direct_stores +=
            node.op == PlanOp::store_ && access_of(static_cast<int32_t>(i)).storage == dtype_;
      }
      const bool folds = node.reduce_axes != 0;
      if (static_cast<int32_t>(i) < matmul_) {
        problem_.prologue_nodes += problem_.whole_k && info_of(node.op).kind == PlanOpKind::map;
        if (folds && node.reduce_axes != bit(plan_.k_axis)) return false;
      } else if (folds) {
        if (node.reduce_axes != bit(plan_.n_axis)) return false;
        problem_.whole_rows = true;
      }
      if (static_cast<int32_t>(i) > matmul_) {
        problem_.epilogue_nodes += info_of(node.op).kind == PlanOpKind::map;
      }
    }
    problem_.local_c = !target_.unified_memory || consumers != 1 || direct_stores != 1;
    problem_.equal_panels = problem_.panels && !target_.unified_memory;
    return true;
  }

  void describe_operands() {
    const NormalAccess& b = access_of(b_);
    problem_.panels = b.packed_panels;
    const bool b_rows = b.strides[plan_.n_axis] == 1 || problem_.n == 1;
    const bool few_rows = problem_.m <= 2 * std::max(1, target_.matmul_mr);
    problem_.pack_b = !problem_.panels &&
                      !(target_.unified_memory && storage_is_register(b_) && b_rows && few_rows);
    problem_.whole_k = plan_.nodes[a_].op != PlanOp::load_;
    if (problem_.whole_k) return;
    const bool a_rows = access_of(a_).strides[plan_.k_axis] == 1 || problem_.k == 1;
    problem_.pack_a = !(target_.unified_memory && storage_is_register(a_) && a_rows);
    problem_.rows_per_set = rows_per_set();
  }

  // Of a register block of A that is read in place.
  int rows_per_set() const {
    constexpr int64_t kWayBytes = 4096, kLineBytes = 64;
    const int64_t rows = std::min<int64_t>(problem_.m, std::max(1, target_.matmul_mr));
    const int64_t stride = access_of(a_).strides[plan_.m_axis] * problem_.element_bytes;
    const int64_t sets = kWayBytes / std::max(std::gcd(stride, kWayBytes), kLineBytes);
    return static_cast<int>(ceil_div(rows, sets));
  }

  void lay_out_grid() {
    code_.space.rank = plan_.rank;
    for (int axis = 0; axis < plan_.rank; ++axis) {
      code_.space.axes[axis] = {plan_.extents[axis], 1, -1};
    }
    code_.space.axes[plan_.m_axis].tile = shape_.rows;
    code_.space.axes[plan_.n_axis].tile = shape_.columns;
    code_.space.axes[plan_.k_axis].tile = problem_.k;
    for (int axis = 0; axis < plan_.rank; ++axis) {
      if (axis != plan_.m_axis && axis != plan_.n_axis) code_.add_dim(axis);
    }
    const size_t outer_rank = code_.grid.size();
    code_.add_dim(shape_.rows_outer ? plan_.m_axis : plan_.n_axis);
    const size_t inner_rank = code_.grid.size();
    code_.add_dim(shape_.rows_outer ? plan_.n_axis : plan_.m_axis);
    code_.chunk_dim = static_cast<int>(code_.grid.size());
    choose_claim(outer_rank, inner_rank);
  }

  // Tiles along the innermost dim share an operand: they go to one core if there are runs enough.
  void choose_claim(size_t outer_rank, size_t inner_rank) {
    if (inner_rank == code_.grid.size()) return;
    int64_t runs = 1;
    for (size_t d = 0; d < inner_rank; ++d) runs *= code_.grid[d].count;
    const int64_t run = code_.grid[inner_rank].count;
    const bool kept = shape_.keep_b || problem_.whole_k ||
                      (shape_.rows_outer && (shape_.pack_a || outer_rank < inner_rank));
    code_.preferred_claim = claimed_run(runs, run, kept, target_.cores);
  }

  // Runs the prologue on the block of A and makes its rows contiguous.
  void compute_a(Lowering& lowering) {
    lowering.lower(a_);
    const NodeState& state = lowering.state(a_);
    const bool rows = state.value.space != Space::immediate &&
                      (state.value.strides[plan_.k_axis] == 1 || problem_.k == 1);
    a_value_ = state.value;
    if (rows) return;
    const uint32_t axes = plan_.nodes[a_].axes | bit(plan_.m_axis) | bit(plan_.k_axis);
    const Instruction copy = lowering.begin(a_, Family::v_copy, dtype_);
    const TileValue operands[] = {lowering.emitter().dense_buffer(dtype_, axes, true), state.value};
    lowering.emitter().elementwise(copy, axes, operands, 2, true);
    a_value_ = operands[0];
  }

  uint8_t extent_of(int axis) {
    const TileAxis& a = code_.space.axes[axis];
    return a.ragged() ? code_.extent_register(1, a.dim) : code_.extent_register(a.tile, -1);
  }

  void emit_blocks(Lowering& lowering) {
    for (int64_t k = 0; k < problem_.k; k += shape_.k_block) {
      const int64_t depth = std::min(shape_.k_block, problem_.k - k);
      const TileOperand a = operand_a(lowering, k, depth);
      const TileOperand b = operand_b(lowering, k, depth);
      const TileValue& c = lowering.state(matmul_).value;
      TileOperand out = lowering.emitter().operand(c, 0);
      out.middle = stride(c.strides[plan_.m_axis]);
      out.inner = 1;
      TileInstruction matmul;
      matmul.family = Family::m_matmul;
      matmul.dtype = dtype_;
      matmul.flags = k > 0 ? kAccumulateAlways : 0;
      matmul.extents[0] = extent_of(plan_.m_axis);
      matmul.extents[1] = code_.extent_register(depth, -1);
      matmul.extents[2] = extent_of(plan_.n_axis);
      matmul.operand_count = 3;
      matmul.operands[0] = out;
      matmul.operands[1] = a;
      matmul.operands[2] = b;
      code_.instructions.push_back(matmul);
    }
  }

  int32_t stride(int64_t wide) {
    const auto narrow = static_cast<int32_t>(wide);
    if (narrow != wide) code_.overflow = true;
    return narrow;
  }

  TileOperand operand_a(Lowering& lowering, int64_t k, int64_t depth) {
    if (problem_.whole_k || !shape_.pack_a) {
      const TileValue value =
          problem_.whole_k ? a_value_ : lowering.access_value(plan_.nodes[a_].access, dtype_);
      TileOperand a = lowering.emitter().operand(value, k * (problem_.k == 1 ? 0 : 1));
      a.middle = stride(value.strides[plan_.m_axis]);
      a.inner = 1;
      return a;
    }
    const NormalAccess& access = access_of(a_);
    const uint32_t dims = code_.space.dims_of(plan_.nodes[a_].axes);
    TileInstruction pack;
    pack.family = Family::d_pack_a;
    pack.dtype = access.storage;
    pack.changed_mask = shape_.rows_outer ? lowering.changed_mask(dims) : 0;
    pack.extents[1] = extent_of(plan_.m_axis);
    pack.extents[2] = code_.extent_register(depth, -1);
    pack.operand_count = 2;
    TileOperand& out = pack.operands[0];
    const int64_t row = packed_row(depth, problem_.element_bytes);
    out.index =
        code_.add_buffer(shape_.rows * row * problem_.element_bytes, pack.changed_mask != 0);
    out.middle = stride(row);
    out.inner = 1;
    TileOperand& from = pack.operands[1];
    from = lowering.emitter().operand(lowering.access_value(plan_.nodes[a_].access, access.storage),
                                      k * access.strides[plan_.k_axis]);
    from.middle = stride(access.strides[plan_.m_axis]);
    from.inner = stride(access.strides[plan_.k_axis]);
    code_.instructions.push_back(pack);
    return out;
  }

  TileOperand operand_b(Lowering& lowering, int64_t k, int64_t depth) {
    const int columns = problem_.columns_per_panel;
    if (problem_.panels) return operand_panels(lowering, k, depth);
    const NormalAccess& access = access_of(b_);
    TileOperand from =
        lowering.emitter().operand(lowering.access_value(plan_.nodes[b_].access, access.storage),
                                   k * access.strides[plan_.k_axis]);
    from.middle = stride(access.strides[plan_.k_axis]);
    if (!problem_.pack_b) {
      from.outer = columns;
      from.inner = 1;
      return from;
    }
    from.inner = stride(access.strides[plan_.n_axis]);
    const uint32_t dims = code_.space.dims_of(plan_.nodes[b_].axes);
    TileInstruction pack;
    pack.family = Family::d_pack_b;
    pack.dtype = access.storage;
    pack.changed_mask = shape_.keep_b ? lowering.changed_mask(dims) : 0;
    pack.extents[1] = code_.extent_register(depth, -1);
    pack.extents[2] = extent_of(plan_.n_axis);
    pack.operand_count = 2;
    pack.operands[0] = panel_buffer(depth, pack.changed_mask != 0);
    pack.operands[1] = from;
    code_.instructions.push_back(pack);
    return pack.operands[0];
  }

  TileOperand panel_buffer(int64_t depth, bool kept) {
    const int64_t columns = problem_.columns_per_panel;
    const int64_t padded = ceil_div(shape_.columns, columns) * columns;
    TileOperand panels;
    panels.index = code_.add_buffer(padded * depth * problem_.element_bytes, kept);
    panels.outer = stride(depth * columns);
    panels.middle = stride(columns);
    panels.inner = 1;
    return panels;
  }

  // Panels packed at load: [batch][panel][k][columns].
  TileOperand operand_panels(Lowering& lowering, int64_t k, int64_t depth) {
    const int64_t columns = problem_.columns_per_panel;
    TileOperand from;
    from.space = Space::pointer;
    from.index = code_.pointer_register(panel_pointer(k));
    from.outer = stride(problem_.k * columns);
    from.middle = stride(columns);
    from.inner = 1;
    if (target_.unified_memory) return from;
    TileInstruction load;
    load.family = Family::d_load_view;
    load.dtype = dtype_;
    load.changed_mask = lowering.changed_mask(code_.space.dims_of(plan_.nodes[b_].axes));
    load.extents[0] = code_.extent_register(ceil_div(shape_.columns, columns), -1);
    load.extents[1] = code_.extent_register(depth, -1);
    load.extents[2] = code_.extent_register(columns, -1);
    load.operand_count = 2;
    load.operands[0] = panel_buffer(depth, load.changed_mask != 0);
    load.operands[1] = from;
    code_.instructions.push_back(load);
    return load.operands[0];
  }

  PointerRegister panel_pointer(int64_t k) const {
    const NormalAccess& access = access_of(b_);
    const int64_t columns = problem_.columns_per_panel;
    const int64_t entry = ceil_div(problem_.n, columns) * columns * problem_.k;
    PointerRegister pointer;
    pointer.buffer = access.value;
    pointer.base = k * columns * problem_.element_bytes;
    pointer.high = entry * problem_.element_bytes;
    for (int axis = 0; axis < plan_.rank; ++axis) {
      const TileAxis& a = code_.space.axes[axis];
      if (axis == plan_.n_axis && a.dim >= 0) {
        pointer.steps[a.dim] = a.tile * problem_.k * problem_.element_bytes;
      }
      if (axis == plan_.n_axis || axis == plan_.m_axis || axis == plan_.k_axis) continue;
      const int64_t step = packed_stride(access.strides[axis], entry) * problem_.element_bytes;
      if (a.dim >= 0) pointer.steps[a.dim] = step;
      pointer.high += step * (a.whole - 1);
    }
    return pointer;
  }

  // Batch strides of packed operands are those of the dense constant [batch..., k, n] or, where
  // that is not what they are multiples of, of the packed entries.
  int64_t packed_stride(int64_t stride, int64_t entry) const {
    const int64_t dense = problem_.k * problem_.n;
    return stride % dense == 0 ? stride / dense * entry : stride;
  }

  const NormalPlan& plan_;
  const Target& target_;
  TileCode& code_;
  LoweringScratch& scratch_;
  int32_t matmul_ = -1, a_ = -1, b_ = -1;
  DType dtype_ = DType::f32;
  BlockProblem problem_;
  BlockShape shape_;
  TileValue a_value_;
};

}  // namespace

bool lower_cube(const NormalPlan& plan, const Target& target, double shrink, TileCode& code,
                LoweringScratch& scratch) {
  return CubeLowering(plan, target, code, scratch).run(shrink);
}

}  // namespace dvm
