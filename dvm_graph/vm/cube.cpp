#include "vm/cube.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>

#include "kernels/numbers.h"
#include "vm/cube_operands.h"
#include "vm/ending.h"

namespace dvm {
namespace {

// The products of a kernel in the blocks that were chosen.
struct CubeTile {
  BlockShape shape;
  BlockedProduct outers[kMaxProducts], inner;
  size_t outer_count = 0;
  bool in_place = false;     // windows are read where they lie
  bool transformed = false;  // and multiplied by way of transforms

  std::span<BlockedProduct> beside() { return {outers, outer_count}; }
  BlockedProduct& outer() { return outers[0]; }
};

// Steps of k rounded up to those of whole blocks of levels.
int64_t whole_blocks(const Product& product, int64_t steps) {
  return product.block > 0 ? ceil_div(steps, product.block) * product.block : steps;
}

// Tiles of which windows are read without packing their patches.
void apply_windows(const WindowTile& windows, CubeTile& tile) {
  tile.in_place = windows.windows > 0;
  if (!tile.in_place) return;
  tile.transformed = windows.transformed;
  tile.shape.rows = windows.windows;
  tile.shape.columns = windows.columns;
  tile.shape.k_block = tile.outer().steps;
  tile.shape.pack_a = tile.shape.keep_a = false;
}

void apply_shape(CubeTile& tile) {
  const BlockShape& shape = tile.shape;
  for (BlockedProduct& outer : tile.beside()) {
    outer.n_block = shape.columns;
    outer.k_block = whole_blocks(outer, shape.k_block);
    outer.keep_a = shape.keep_a;
    outer.keep_b = shape.keep_b;
    outer.pack_a = shape.pack_a;
    outer.pack_b = shape.pack_b;
  }
  tile.inner.n_block = shape.inner_columns;
  tile.inner.k_block = whole_blocks(tile.inner, shape.inner_k_block);
  tile.inner.keep_b = shape.keep_inner_b;
}

// False: no block shape fits.
bool choose_tile(const CubeProblem& problem, double shrink, CubeTile& tile) {
  const Target& target = problem.target();
  for (const Product& product : problem.beside()) tile.outers[tile.outer_count++] = {product};
  tile.inner = {problem.inner()};
  tile.inner.blocks_columns = true;
  const auto local = static_cast<int64_t>(static_cast<double>(target.local_bytes) * shrink);
  tile.shape = shrink == 1 ? problem.shape() : choose_block(problem.blocks(), target, local);
  if (tile.shape.rows == 0) return false;
  if (shrink == 1) apply_windows(problem.windows(), tile);
  apply_shape(tile);
  return true;
}

// Tiles along the innermost dims share an operand: they go to one core if there are runs enough.
void choose_claim(const CubeProblem& problem, CubeTile& tile, TileCode& code) {
  const NormalPlan& plan = problem.plan();
  const BlockedProduct& outer = tile.outer();
  const bool rows_outer = tile.shape.rows_outer;
  uint32_t axes = plan.nodes[rows_outer ? outer.a : outer.b].axes;
  if (problem.has_inner() && !rows_outer) axes |= plan.nodes[tile.inner.b].axes;
  const uint32_t moves = code.space.dims_of(axes);
  size_t inner_rank = code.grid.size();
  int64_t runs = 1, run = 1;
  while (inner_rank > 0 && !(moves >> (inner_rank - 1) & 1)) run *= code.grid[--inner_rank].count;
  for (size_t d = 0; d < inner_rank; ++d) runs *= code.grid[d].count;
  const bool kept = outer.keep_a || outer.keep_b || tile.inner.keep_b || problem.blocks().whole_k;
  code.preferred_claim = claimed_run(runs, run, kept, problem.target().cores);
}

void lay_out_grid(const CubeProblem& problem, CubeTile& tile, TileCode& code) {
  const NormalPlan& plan = problem.plan();
  code.space.rank = plan.rank;
  for (int axis = 0; axis < plan.rank; ++axis) {
    code.space.axes[axis] = {plan.extents[axis], 1, -1, plan.open[axis]};
  }
  code.space.axes[plan.m_axis].tile = tile.shape.rows;
  code.space.axes[plan.n_axis].tile = tile.shape.columns;
  code.space.axes[plan.k_axis].tile = problem.blocks().k;
  if (problem.has_inner()) code.space.axes[plan.inner_k_axis].tile = tile.inner.k;
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (axis != plan.m_axis && axis != plan.n_axis) code.add_dim(axis);
  }
  code.add_dim(tile.shape.rows_outer ? plan.m_axis : plan.n_axis);
  code.add_dim(tile.shape.rows_outer ? plan.n_axis : plan.m_axis);
  code.chunk_dim = static_cast<int>(code.grid.size());
  choose_claim(problem, tile, code);
}

// Into code whose grid is laid out.
class CubeLowering {
 public:
  CubeLowering(const CubeProblem& problem, CubeTile& tile, TileCode& code, LoweringScratch& scratch)
      : problem_(problem),
        plan_(problem.plan()),
        dtype_(problem.dtype()),
        bundle_(problem.bundle()),
        tile_(tile),
        code_(code),
        lowering_(plan_, problem.target(), code, scratch, 0),
        operands_(problem, tile.shape.rows, code, lowering_) {}

  void lower_all() {
    compute_a(tile_.outer());
    emit_products(tile_.beside());
    lowering_.lower_all();
  }

 private:
  // Runs the prologue of a product on its block of A and makes the rows contiguous.
  void compute_a(BlockedProduct& product) {
    if (!problem_.is_computed(product.a)) return;
    if (&product == &tile_.outer() && problem_.has_inner()) {
      compute_a(tile_.inner);
      emit_products({&tile_.inner, 1});
    }
    lowering_.lower(product.a);
    fold_rows(product);
    const NodeState& state = lowering_.state(product.a);
    if (&product == &tile_.outer() && finish_of(tile_.inner).bundles) {
      product.computed_a = state.value;
      return;
    }
    const bool rows = state.value.space != Space::immediate &&
                      (state.value.strides[product.k_axis] == 1 || product.k == 1);
    product.computed_a = state.value;
    if (rows && bundle_ == 1) return;
    if (bundle_ > 1 && state.value.space != Space::immediate) return operands_.bundle(product);
    const uint32_t axes = plan_.nodes[product.a].axes | bit(plan_.m_axis) | bit(product.k_axis);
    const Instruction copy = lowering_.begin(product.a, Family::v_copy, dtype_);
    const TileValue operands[] = {lowering_.emitter().dense_buffer(dtype_, axes, true),
                                  state.value};
    lowering_.emitter().elementwise(copy, axes, operands, 2, true);
    product.computed_a = operands[0];
    if (bundle_ > 1) operands_.bundle(product);
  }

  // What the rows of A are folded to joins what computes them, also where only the epilogue uses
  // it.
  void fold_rows(const BlockedProduct& product) {
    for (int32_t i = 0; i < product.node; ++i) {
      if (plan_.nodes[i].reduce_axes == bit(product.k_axis)) lowering_.lower(i);
    }
  }

  // Products of the same rows and sizes: a block of A serves all of them.
  void emit_products(std::span<const BlockedProduct> products) {
    const BlockedProduct& first = products.front();
    if (first.k_block < 1 || first.n_block < 1) throw std::logic_error("a block is empty");
    const uint8_t mask = lowering_.changed_mask(dims_of(first));
    TileValue values[kMaxProducts];
    for (size_t i = 0; i < products.size(); ++i) {
      // Vector operators before the others in the plan may read where it is stored.
      if (products.size() > 1) lowering_.state(products[i].finish.node).stored_by = -1;
      values[i] = place_result(products[i], mask);
    }
    if (&first == &tile_.outer() && tile_.in_place) return multiply_windows(first, values[0], mask);
    for (int64_t k = 0; k < first.steps; k += first.k_block) {
      const int64_t depth = std::min(first.k_block, first.steps - k);
      const TileOperand a = operands_.a(first, k, depth, mask);
      const int64_t width = first.blocks_columns ? first.n : first.n_block;
      for (size_t i = 0; i < products.size(); ++i) {
        for (int64_t n = 0; n < width; n += first.n_block) {
          const BlockOfB part{k, depth, n, std::min(first.n_block, width - n), mask};
          multiply(products[i], values[i], part, a);
        }
      }
    }
  }

  uint32_t dims_of(const BlockedProduct& product) const {
    return code_.space.dims_of(plan_.nodes[product.node].axes);
  }

  // Where a product goes, with what finishes it in passing.
  TileValue place_result(const BlockedProduct& product, uint8_t mask) {
    const Finish finish = finish_of(product);
    leave_to_product(finish.node, product.node);
    lowering_.state(product.node).lowered = true;
    const int32_t result = finish.nodes > 0 ? finish.node : product.node;
    NodeState& c = lowering_.state(result);
    c.dims = dims_of(product);
    if (finish.store >= 0) {
      const int32_t access = plan_.nodes[finish.store].access;
      c.value = lowering_.access_value(access, plan_.accesses[access].storage);
      lowering_.state(finish.store).lowered = true;
    } else if (finish.bundles) {
      c.value = operands_.room_for_bundles(product.n / bundle_, product.n_axis, mask != 0);
      TileValue bytes = c.value;
      bytes.dtype = DType::u8;
      bytes.strides[plan_.m_axis] *= bundle_;
      return bytes;
    } else {
      c.value = lowering_.place_for(result, mask != 0);
    }
    return c.value;
  }

  // What is quantised is so at once, with the sums of all of k.
  Finish finish_of(const BlockedProduct& product) const {
    const bool whole = product.k_block >= product.steps;
    return whole || !product.finish.quantizes() ? product.finish : Finish{};
  }

  // Whether an instruction multiplies the first or the last block of k.
  struct Ends {
    bool first, last;
  };

  void multiply(const BlockedProduct& product, const TileValue& c, const BlockOfB& part,
                const TileOperand& a) {
    const Finish finish = finish_of(product);
    TileInstruction matmul;
    matmul.family = bundle_ > 1                ? Family::m_matmul_bundles
                    : product.block > 0        ? plan_.nodes[product.node].narrow_to == DType::i8
                                                     ? Family::m_matmul_rounded_blocks
                                                     : Family::m_matmul_blocks
                    : problem_.widens(product) ? Family::m_matmul_widen
                                               : Family::m_matmul;
    if (product.block > 0) {
      matmul.extra[0] = static_cast<uint64_t>(product.block);
      matmul.extra[1] = static_cast<uint64_t>(product.block_bits);
    }
    matmul.dtype = bundle_ > 1                ? problem_.multiplied()
                   : problem_.widens(product) ? problem_.access_of(product.b).storage
                                              : dtype_;
    matmul.changed_mask = part.mask;
    matmul.flags = part.k > 0 ? kAccumulateAlways : 0;
    matmul.operand_count = 3;
    matmul.operands[0] = operands_.rows_of(c, part.n * c.strides[product.n_axis]);
    matmul.operands[1] = a;
    matmul.operands[2] = operands_.b(product, part);
    matmul.extents[0] = code_.extent_of(plan_.m_axis);
    matmul.extents[1] = operands_.part_of(product.k_axis, part.depth);
    matmul.extents[2] = operands_.columns_extent(product, part);
    if (finish.quantizes()) {
      quantize_in_passing(product, part.n, c.dtype, matmul);
    } else if (finish.nodes > 0) {
      const Ends ends{part.k == 0, part.k + part.depth == product.steps};
      finish_in_passing(finish, ends, matmul);
    }
    code_.instructions.push_back(matmul);
  }

  // Windows over images in one instruction, with what follows the product in passing.
  void multiply_windows(const BlockedProduct& product, const TileValue& c, uint8_t mask) {
    const NormalNode& node = plan_.nodes[product.a];
    const BlockOfB part{0, product.steps, 0, product.n_block, mask};
    TileInstruction matmul;
    matmul.dtype = dtype_;
    matmul.changed_mask = mask;
    matmul.operand_count = 4;
    matmul.operands[0] = operands_.rows_of(c, 0);
    matmul.operands[1] =
        lowering_.emitter().operand(lowering_.access_value(node.access, dtype_), 0);
    matmul.operands[2] =
        lowering_.emitter().operand(lowering_.access_value(node.numbers, DType::i64), 0);
    matmul.operands[2].outer = 1;
    matmul.operands[3] = operands_.b(product, part);
    matmul.extents[0] = code_.extent_of(plan_.m_axis);
    matmul.extents[1] = code_.extent_register(part.depth, -1);
    matmul.extents[2] = operands_.columns_extent(product, part);
    matmul.window = static_cast<int32_t>(code_.windows.size());
    code_.windows.push_back(plan_.windows[node.window]);
    finish_in_passing(product.finish, {true, true}, matmul);
    matmul.family = tile_.transformed ? Family::m_matmul_transformed : Family::m_matmul_windows;
    code_.instructions.push_back(matmul);
  }

  // From what finishes a product back to its node, all are its own.
  void leave_to_product(int32_t node, int32_t product) {
    if (node <= product) return;
    const NormalNode& own = plan_.nodes[node];
    if (own.op == PlanOp::fill_ || own.op == PlanOp::load_) return;
    lowering_.state(node).lowered = true;
    for (const int32_t input : own.inputs) leave_to_product(input, product);
  }

  // The first block of k adds to the addend, the last one ends the sums.
  void finish_in_passing(const Finish& finish, Ends ends, TileInstruction& matmul) {
    const bool adds = ends.first && finish.addend >= 0;
    if (!adds && !ends.last) return;
    TileOperand addend;
    addend.space = Space::immediate;
    if (adds) {
      const int32_t access = plan_.nodes[finish.addend].access;
      addend = operands_.rows_of(lowering_.access_value(access, dtype_), 0);
    } else if (!ends.first) {
      addend = matmul.operands[0];
    }
    matmul.family = Family::m_matmul_clamp;
    matmul.flags = 0;
    // What an earlier block of k left in the caches stays there.
    if (ends.first && ends.last && lowering_.streams(lowering_.state(finish.node).stored_by)) {
      matmul.flags = kStream;
    }
    matmul.operands[matmul.operand_count++] = addend;
    if (ends.last) {
      std::ranges::copy(finish.ending, matmul.extra);
    } else {
      Ending().write(dtype_, matmul.extra);
    }
  }

  void quantize_in_passing(const BlockedProduct& product, int64_t column, DType stored,
                           TileInstruction& matmul) {
    const Finish& finish = product.finish;
    matmul.family = Family::m_matmul_quantize;
    matmul.dtype = stored;
    matmul.operands[matmul.operand_count++] = row_or_number(finish.addend, column, DType::i32);
    matmul.operands[matmul.operand_count++] = row_or_number(finish.factor, column, DType::f32);
    std::memcpy(matmul.extra, &finish.levels, sizeof finish.levels);
  }

  // A load, from a column of the tile on, or fill; -1: 0.
  TileOperand row_or_number(int32_t node, int64_t column, DType dtype) {
    if (node >= 0 && plan_.nodes[node].op == PlanOp::load_) {
      const TileValue value = lowering_.access_value(plan_.nodes[node].access, dtype);
      TileOperand row = lowering_.emitter().operand(value, column);
      row.inner = 1;
      return row;
    }
    return TileOperand::of_immediate(node < 0 ? 0 : plan_.nodes[node].immediate);
  }

  const CubeProblem& problem_;
  const NormalPlan& plan_;
  const DType dtype_;
  const int64_t bundle_;
  CubeTile& tile_;
  TileCode& code_;
  Lowering lowering_;
  CubeOperands operands_;
};

}  // namespace

bool lower_cube(const CubeProblem& problem, double shrink, TileCode& code,
                LoweringScratch& scratch) {
  CubeTile tile;
  if (!problem.possible() || !choose_tile(problem, shrink, tile)) return false;
  lay_out_grid(problem, tile, code);
  if (code.overflow) return false;
  CubeLowering(problem, tile, code, scratch).lower_all();
  return !code.overflow;
}

}  // namespace dvm
