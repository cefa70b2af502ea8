#include "vm/cube.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>

#include "kernels/numbers.h"
#include "vm/bounds.h"

namespace dvm {
namespace {

// A product as it is computed in the blocks that were chosen.
struct BlockedProduct : Product {
  bool keep_a = false, keep_b = false;  // packed operands stay while others pass
  bool blocks_columns = false;          // the columns of a tile, in blocks; else those of the grid
  int64_t n_block = 1, k_block = 1;     // of one instruction, k_block in steps
  TileValue computed_a = {};            // a block of it, by the prologue
};

class CubeLowering {
 public:
  CubeLowering(const CubeProblem& problem, TileCode& code, LoweringScratch& scratch)
      : problem_(problem),
        plan_(problem.plan()),
        target_(problem.target()),
        blocks_(problem.blocks()),
        dtype_(problem.dtype()),
        bundle_(problem.bundle()),
        code_(code),
        scratch_(scratch),
        inner_{problem.inner()} {
    for (const Product& product : problem.beside()) outers_[outer_count_++] = {product};
    inner_.blocks_columns = true;
  }

  bool run(double shrink) {
    if (!problem_.possible()) return false;
    const auto local = static_cast<int64_t>(static_cast<double>(target_.local_bytes) * shrink);
    shape_ = shrink == 1 ? problem_.shape() : choose_block(blocks_, target_, local);
    if (shape_.rows == 0) return false;
    if (shrink == 1) apply_windows(problem_.windows());
    apply_shape();
    lay_out_grid();
    if (code_.overflow) return false;
    Lowering lowering(plan_, target_, code_, scratch_, 0);
    compute_a(lowering, outer());
    emit_products(lowering, outers());
    lowering.lower_all();
    return !code_.overflow;
  }

 private:
  std::span<BlockedProduct> outers() { return {outers_, outer_count_}; }
  BlockedProduct& outer() { return outers_[0]; }
  const BlockedProduct& outer() const { return outers_[0]; }

  // Tiles of which windows are read without packing their patches.
  void apply_windows(const WindowTile& tile) {
    in_place_ = tile.windows > 0;
    if (!in_place_) return;
    transformed_ = tile.transformed;
    shape_.rows = tile.windows;
    shape_.columns = tile.columns;
    shape_.k_block = outer().steps;
    shape_.pack_a = shape_.keep_a = false;
  }

  void apply_shape() {
    for (BlockedProduct& outer : outers()) {
      outer.n_block = shape_.columns;
      outer.k_block = whole_blocks(outer, shape_.k_block);
      outer.keep_a = shape_.keep_a;
      outer.keep_b = shape_.keep_b;
      outer.pack_a = shape_.pack_a;
      outer.pack_b = shape_.pack_b;
    }
    inner_.n_block = shape_.inner_columns;
    inner_.k_block = whole_blocks(inner_, shape_.inner_k_block);
    inner_.keep_b = shape_.keep_inner_b;
  }

  // Steps of k rounded up to those of whole blocks of levels.
  static int64_t whole_blocks(const Product& product, int64_t steps) {
    return product.block > 0 ? ceil_div(steps, product.block) * product.block : steps;
  }

  void lay_out_grid() {
    code_.space.rank = plan_.rank;
    for (int axis = 0; axis < plan_.rank; ++axis) {
      code_.space.axes[axis] = {plan_.extents[axis], 1, -1};
    }
    code_.space.axes[plan_.m_axis].tile = shape_.rows;
    code_.space.axes[plan_.n_axis].tile = shape_.columns;
    code_.space.axes[plan_.k_axis].tile = blocks_.k;
    if (problem_.has_inner()) code_.space.axes[plan_.inner_k_axis].tile = inner_.k;
    for (int axis = 0; axis < plan_.rank; ++axis) {
      if (axis != plan_.m_axis && axis != plan_.n_axis) code_.add_dim(axis);
    }
    code_.add_dim(shape_.rows_outer ? plan_.m_axis : plan_.n_axis);
    code_.add_dim(shape_.rows_outer ? plan_.n_axis : plan_.m_axis);
    code_.chunk_dim = static_cast<int>(code_.grid.size());
    choose_claim();
  }

  // Tiles along the innermost dims share an operand: they go to one core if there are runs enough.
  void choose_claim() {
    uint32_t axes = plan_.nodes[shape_.rows_outer ? outer().a : outer().b].axes;
    if (problem_.has_inner() && !shape_.rows_outer) axes |= plan_.nodes[inner_.b].axes;
    const uint32_t moves = code_.space.dims_of(axes);
    size_t inner_rank = code_.grid.size();
    int64_t runs = 1, run = 1;
    while (inner_rank > 0 && !(moves >> (inner_rank - 1) & 1))
      run *= code_.grid[--inner_rank].count;
    for (size_t d = 0; d < inner_rank; ++d) runs *= code_.grid[d].count;
    const bool kept = outer().keep_a || outer().keep_b || inner_.keep_b || blocks_.whole_k;
    code_.preferred_claim = claimed_run(runs, run, kept, target_.cores);
  }

  // Runs the prologue of a product on its block of A and makes the rows contiguous.
  void compute_a(Lowering& lowering, BlockedProduct& product) {
    if (!problem_.is_computed(product.a)) return;
    if (&product == &outer() && problem_.has_inner()) {
      compute_a(lowering, inner_);
      emit_products(lowering, {&inner_, 1});
    }
    lowering.lower(product.a);
    fold_rows(lowering, product);
    const NodeState& state = lowering.state(product.a);
    if (&product == &outer() && finish_of(inner_).bundles) {
      product.computed_a = state.value;
      return;
    }
    const bool rows = state.value.space != Space::immediate &&
                      (state.value.strides[product.k_axis] == 1 || product.k == 1);
    product.computed_a = state.value;
    if (rows && bundle_ == 1) return;
    if (bundle_ > 1 && state.value.space != Space::immediate) return bundle_a(lowering, product);
    const uint32_t axes = plan_.nodes[product.a].axes | bit(plan_.m_axis) | bit(product.k_axis);
    const Instruction copy = lowering.begin(product.a, Family::v_copy, dtype_);
    const TileValue operands[] = {lowering.emitter().dense_buffer(dtype_, axes, true), state.value};
    lowering.emitter().elementwise(copy, axes, operands, 2, true);
    product.computed_a = operands[0];
    if (bundle_ > 1) bundle_a(lowering, product);
  }

  // What the rows of A are folded to joins what computes them, also where only the epilogue uses
  // it.
  void fold_rows(Lowering& lowering, const BlockedProduct& product) {
    for (int32_t i = 0; i < product.node; ++i) {
      if (plan_.nodes[i].reduce_axes == bit(product.k_axis)) lowering.lower(i);
    }
  }

  // The computed block of A, rounded.
  void bundle_a(Lowering& lowering, BlockedProduct& product) {
    TileOperand from = lowering.emitter().operand(product.computed_a, 0);
    from.middle = stride(product.computed_a.strides[plan_.m_axis]);
    from.inner = stride(product.computed_a.strides[product.k_axis]);
    const uint8_t mask = lowering.begin(product.a, Family::d_pack_a_bundles, dtype_).changed_mask;
    product.computed_a = room_for_bundles(product.steps, product.k_axis, true);
    TileInstruction pack = pack_bundles(lowering, product.computed_a, dtype_, product.k, mask);
    pack.operands[1] = from;
    code_.instructions.push_back(pack);
  }

  // Rows of so many bundles along an axis, in a new buffer.
  TileValue room_for_bundles(int64_t steps, int axis, bool kept) {
    const int64_t row = packed_row(steps, blocks_.element_bytes, target_);
    TileValue rows;
    rows.index = code_.add_buffer(shape_.rows * row * blocks_.element_bytes, kept);
    rows.dtype = kBundle;
    rows.strides[plan_.m_axis] = row;
    rows.strides[axis] = 1;
    return rows;
  }

  // Packs rows of A; where from is left open.
  TileInstruction pack_bundles(Lowering& lowering, const TileValue& to, DType from, int64_t depth,
                               uint8_t mask) {
    TileInstruction pack;
    pack.family = Family::d_pack_a_bundles;
    pack.dtype = from;
    pack.changed_mask = mask;
    pack.extents[1] = extent_of(plan_.m_axis);
    pack.extents[2] = code_.extent_register(depth, -1);
    pack.operand_count = 2;
    pack.operands[0] = rows_of(lowering, to, 0);
    return pack;
  }

  uint8_t extent_of(int axis) {
    const TileAxis& a = code_.space.axes[axis];
    return a.ragged() ? code_.extent_register(1, a.dim) : code_.extent_register(a.tile, -1);
  }

  // A part of B: steps [k, k + depth) of columns [n, n + columns) of a tile.
  struct Part {
    int64_t k, depth, n, columns;
    uint8_t mask;
  };

  // Products of the same rows and sizes: a block of A serves all of them.
  void emit_products(Lowering& lowering, std::span<const BlockedProduct> products) {
    const BlockedProduct& first = products.front();
    if (first.k_block < 1 || first.n_block < 1) throw std::logic_error("a block is empty");
    const uint8_t mask = lowering.changed_mask(dims_of(first));
    TileValue values[kMaxProducts];
    for (size_t i = 0; i < products.size(); ++i) {
      // Vector operators before the others in the plan may read where it is stored.
      if (products.size() > 1) lowering.state(products[i].finish.node).stored_by = -1;
      values[i] = place_result(lowering, products[i], mask);
    }
    if (&first == &outer() && in_place_) return multiply_windows(lowering, first, values[0], mask);
    for (int64_t k = 0; k < first.steps; k += first.k_block) {
      const int64_t depth = std::min(first.k_block, first.steps - k);
      const TileOperand a = operand_a(lowering, first, k, depth, mask);
      const int64_t width = first.blocks_columns ? first.n : first.n_block;
      for (size_t i = 0; i < products.size(); ++i) {
        for (int64_t n = 0; n < width; n += first.n_block) {
          const Part part{k, depth, n, std::min(first.n_block, width - n), mask};
          multiply(lowering, products[i], values[i], part, a);
        }
      }
    }
  }

  uint32_t dims_of(const BlockedProduct& product) const {
    return code_.space.dims_of(plan_.nodes[product.node].axes);
  }

  // Where a product goes, with what finishes it in passing.
  TileValue place_result(Lowering& lowering, const BlockedProduct& product, uint8_t mask) {
    const Finish finish = finish_of(product);
    if (finish.nodes > 0) leave_to_product(lowering, finish);
    lowering.state(product.node).lowered = true;
    const int32_t result = finish.nodes > 0 ? finish.node : product.node;
    NodeState& c = lowering.state(result);
    c.dims = dims_of(product);
    if (finish.store >= 0) {
      const int32_t access = plan_.nodes[finish.store].access;
      c.value = lowering.access_value(access, plan_.accesses[access].storage);
      lowering.state(finish.store).lowered = true;
    } else if (finish.bundles) {
      c.value = room_for_bundles(product.n / bundle_, product.n_axis, mask != 0);
      TileValue bytes = c.value;
      bytes.dtype = DType::u8;
      bytes.strides[plan_.m_axis] *= bundle_;
      return bytes;
    } else {
      c.value = lowering.place_for(result, mask != 0);
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

  void multiply(Lowering& lowering, const BlockedProduct& product, const TileValue& c,
                const Part& part, const TileOperand& a) {
    const Finish finish = finish_of(product);
    TileInstruction matmul;
    matmul.family = bundle_ > 1                ? Family::m_matmul_bundles
                    : product.block > 0        ? Family::m_matmul_blocks
                    : problem_.widens(product) ? Family::m_matmul_widen
                                               : Family::m_matmul;
    if (product.block > 0) matmul.extra[0] = static_cast<uint64_t>(product.block);
    matmul.dtype = bundle_ > 1                ? problem_.multiplied()
                   : problem_.widens(product) ? problem_.access_of(product.b).storage
                                              : dtype_;
    matmul.changed_mask = part.mask;
    matmul.flags = part.k > 0 ? kAccumulateAlways : 0;
    matmul.operand_count = 3;
    matmul.operands[0] = rows_of(lowering, c, part.n * c.strides[product.n_axis]);
    matmul.operands[1] = a;
    matmul.operands[2] = operand_b(lowering, product, part);
    matmul.extents[0] = extent_of(plan_.m_axis);
    matmul.extents[1] = code_.extent_register(part.depth, -1);
    matmul.extents[2] = columns_extent(product, part);
    if (finish.quantizes()) {
      quantize_in_passing(lowering, product, part.n, c.dtype, matmul);
    } else if (finish.nodes > 0) {
      const Ends ends{part.k == 0, part.k + part.depth == product.steps};
      finish_in_passing(lowering, finish, ends, matmul);
    }
    code_.instructions.push_back(matmul);
  }

  // Windows over images in one instruction, with what follows the product in passing.
  void multiply_windows(Lowering& lowering, const BlockedProduct& product, const TileValue& c,
                        uint8_t mask) {
    const NormalNode& node = plan_.nodes[product.a];
    const Part part{0, product.steps, 0, product.n_block, mask};
    TileInstruction matmul;
    matmul.dtype = dtype_;
    matmul.changed_mask = mask;
    matmul.operand_count = 4;
    matmul.operands[0] = rows_of(lowering, c, 0);
    matmul.operands[1] = lowering.emitter().operand(lowering.access_value(node.access, dtype_), 0);
    matmul.operands[2] =
        lowering.emitter().operand(lowering.access_value(node.numbers, DType::i64), 0);
    matmul.operands[2].outer = 1;
    matmul.operands[3] = operand_b(lowering, product, part);
    matmul.extents[0] = extent_of(plan_.m_axis);
    matmul.extents[1] = code_.extent_register(part.depth, -1);
    matmul.extents[2] = columns_extent(product, part);
    matmul.window = static_cast<int32_t>(code_.windows.size());
    code_.windows.push_back(plan_.windows[node.window]);
    finish_in_passing(lowering, product.finish, {true, true}, matmul);
    matmul.family = transformed_ ? Family::m_matmul_transformed : Family::m_matmul_windows;
    code_.instructions.push_back(matmul);
  }

  // From a product's node to what finishes it, all are its own.
  void leave_to_product(Lowering& lowering, const Finish& finish) {
    int32_t node = finish.node;
    for (int i = 0; i < finish.nodes; ++i) {
      lowering.state(node).lowered = true;
      const auto& inputs = plan_.nodes[node].inputs;
      const PlanOp first = plan_.nodes[inputs[0]].op;
      node = inputs[first == PlanOp::fill_ || first == PlanOp::load_ ? 1 : 0];
    }
  }

  // Rows of the tile, `offset` elements into them.
  TileOperand rows_of(Lowering& lowering, const TileValue& value, int64_t offset) {
    TileOperand rows = lowering.emitter().operand(value, offset);
    rows.middle = stride(value.strides[plan_.m_axis]);
    rows.inner = 1;
    return rows;
  }

  // The first block of k adds to the addend, the last one keeps to the bounds.
  void finish_in_passing(Lowering& lowering, const Finish& finish, Ends ends,
                         TileInstruction& matmul) {
    const bool adds = ends.first && finish.addend >= 0;
    if (!adds && !ends.last) return;
    TileOperand addend;
    addend.space = Space::immediate;
    if (adds) {
      const int32_t access = plan_.nodes[finish.addend].access;
      addend = rows_of(lowering, lowering.access_value(access, dtype_), 0);
    } else if (!ends.first) {
      addend = matmul.operands[0];
    }
    matmul.family = Family::m_matmul_clamp;
    matmul.flags = 0;
    // What an earlier block of k left in the caches stays there.
    if (ends.first && ends.last && lowering.streams(lowering.state(finish.node).stored_by)) {
      matmul.flags = kStream;
    }
    matmul.operands[matmul.operand_count++] = addend;
    if (ends.last) {
      std::ranges::copy(finish.bounds, matmul.extra);
    } else {
      Bounds().write(dtype_, matmul.extra);
    }
  }

  void quantize_in_passing(Lowering& lowering, const BlockedProduct& product, int64_t column,
                           DType stored, TileInstruction& matmul) {
    const Finish& finish = product.finish;
    matmul.family = Family::m_matmul_quantize;
    matmul.dtype = stored;
    matmul.operands[matmul.operand_count++] =
        row_or_number(lowering, finish.addend, column, DType::i32);
    matmul.operands[matmul.operand_count++] =
        row_or_number(lowering, finish.factor, column, DType::f32);
    std::memcpy(matmul.extra, &finish.levels, sizeof finish.levels);
  }

  // A load, from a column of the tile on, or fill; -1: 0.
  TileOperand row_or_number(Lowering& lowering, int32_t node, int64_t column, DType dtype) {
    if (node >= 0 && plan_.nodes[node].op == PlanOp::load_) {
      const TileValue value = lowering.access_value(plan_.nodes[node].access, dtype);
      TileOperand row = lowering.emitter().operand(value, column);
      row.inner = 1;
      return row;
    }
    return TileOperand::of_immediate(node < 0 ? 0 : plan_.nodes[node].immediate);
  }

  // Elements of k that so many steps from step `first` on are.
  int64_t elements_of(const BlockedProduct& product, int64_t first, int64_t depth) const {
    return std::min(depth * bundle_, product.k - first * bundle_);
  }

  uint8_t columns_extent(const BlockedProduct& product, const Part& part) {
    return product.blocks_columns ? code_.extent_register(part.columns, -1)
                                  : extent_of(product.n_axis);
  }

  int32_t stride(int64_t wide) {
    const auto narrow = static_cast<int32_t>(wide);
    if (narrow != wide) code_.overflow = true;
    return narrow;
  }

  TileOperand operand_a(Lowering& lowering, const BlockedProduct& product, int64_t k, int64_t depth,
                        uint8_t mask) {
    const bool computed = problem_.is_computed(product.a);
    if (computed || !product.pack_a) {
      const TileValue value = computed
                                  ? product.computed_a
                                  : lowering.access_value(plan_.nodes[product.a].access, dtype_);
      // In place, its elements are counted, not bundles of them.
      const int64_t elements = computed ? 1 : bundle_;
      TileOperand a = lowering.emitter().operand(value, k * (product.k == 1 ? 0 : elements));
      a.middle = stride(value.strides[plan_.m_axis] / elements);
      a.inner = 1;
      return a;
    }
    if (plan_.nodes[product.a].op == PlanOp::patches_) {
      return operand_patches(lowering, product, k, depth, mask);
    }
    const NormalAccess& access = problem_.access_of(product.a);
    TileInstruction pack;
    pack.family = bundle_ > 1 ? Family::d_pack_a_bundles : Family::d_pack_a;
    pack.dtype = access.storage;
    pack.changed_mask = product.keep_a ? kept_mask(lowering, product.a) : mask;
    pack.extents[1] = extent_of(plan_.m_axis);
    pack.extents[2] = code_.extent_register(elements_of(product, k, depth), -1);
    pack.operand_count = 2;
    TileOperand& out = pack.operands[0];
    const int64_t row = packed_row(depth, blocks_.element_bytes, target_);
    out.index = code_.add_buffer(shape_.rows * row * blocks_.element_bytes,
                                 product.keep_a && pack.changed_mask != 0);
    out.middle = stride(row);
    out.inner = 1;
    TileOperand& from = pack.operands[1];
    from = lowering.emitter().operand(
        lowering.access_value(plan_.nodes[product.a].access, access.storage),
        k * bundle_ * access.strides[product.k_axis]);
    from.middle = stride(access.strides[plan_.m_axis]);
    from.inner = stride(access.strides[product.k_axis]);
    code_.instructions.push_back(pack);
    return out;
  }

  // Rows of A are the elements of windows over images.
  TileOperand operand_patches(Lowering& lowering, const BlockedProduct& product, int64_t k,
                              int64_t depth, uint8_t mask) {
    const NormalNode& node = plan_.nodes[product.a];
    const bool whole = problem_.bundled_patches(product.a);  // bundles are moved as they are
    const DType storage = whole ? kBundle : problem_.access_of(product.a).storage;
    TileInstruction pack;
    pack.family = Family::d_pack_patches;
    pack.dtype = storage;
    pack.changed_mask = product.keep_a ? kept_mask(lowering, product.a) : mask;
    const int64_t elements = whole ? depth : elements_of(product, k, depth);
    pack.extents[1] = extent_of(plan_.m_axis);
    pack.extents[2] = code_.extent_register(elements, -1);
    pack.operand_count = 3;
    const int64_t row = patch_row(elements);
    TileOperand& out = pack.operands[0];
    out.index = code_.add_buffer(shape_.rows * row * blocks_.element_bytes,
                                 product.keep_a && pack.changed_mask != 0);
    out.middle = stride(row);
    out.inner = 1;
    pack.operands[1] = lowering.emitter().operand(lowering.access_value(node.access, storage), 0);
    pack.operands[2] =
        lowering.emitter().operand(lowering.access_value(node.numbers, DType::i64), 0);
    pack.operands[2].middle = stride(plan_.accesses[node.numbers].strides[plan_.m_axis]);
    pack.window = static_cast<int32_t>(code_.windows.size());
    code_.windows.push_back(plan_.windows[node.window]);
    Window& window = code_.windows.back();
    window.first = static_cast<int32_t>(whole ? k : k * bundle_);
    if (whole) {
      window.pixel /= static_cast<int32_t>(bundle_);
      window.channels /= static_cast<int32_t>(bundle_);
    }
    code_.instructions.push_back(pack);
    if (bundle_ == 1 || whole) return out;
    const bool kept = product.keep_a && pack.changed_mask != 0;
    const TileValue rows = room_for_bundles(depth, product.k_axis, kept);
    TileInstruction bundles = pack_bundles(lowering, rows, dtype_, elements, pack.changed_mask);
    bundles.operands[1] = out;
    code_.instructions.push_back(bundles);
    return bundles.operands[0];
  }

  // Elements between rows of packed patches: whole vectors, and no multiple of what makes many rows
  // fall into one set of a cache.
  int64_t patch_row(int64_t depth) const {
    const int64_t vector = target_.vector_bytes / blocks_.element_bytes;
    const int64_t row = ceil_div(depth, vector) * vector;
    return shares_sets(row * blocks_.element_bytes, target_) ? row + vector : row;
  }

  uint8_t kept_mask(Lowering& lowering, int32_t node) const {
    return lowering.changed_mask(code_.space.dims_of(plan_.nodes[node].axes));
  }

  TileOperand operand_b(Lowering& lowering, const BlockedProduct& product, const Part& part) {
    const int columns = blocks_.columns_per_panel;
    if (product.panels) return operand_panels(lowering, product, part);
    const NormalAccess& access = problem_.access_of(product.b);
    TileOperand from = lowering.emitter().operand(
        lowering.access_value(plan_.nodes[product.b].access, access.storage),
        part.k * bundle_ * access.strides[product.k_axis] +
            part.n * access.strides[product.n_axis]);
    from.middle = stride(access.strides[product.k_axis]);
    if (!product.pack_b) {
      from.inner = product.columns_b && product.n > 1 ? stride(access.strides[product.n_axis]) : 1;
      from.outer = stride(int64_t{columns} * from.inner);
      return from;
    }
    from.inner = stride(access.strides[product.n_axis]);
    TileInstruction pack;
    pack.family = bundle_ > 1 ? Family::d_pack_b_bundles : Family::d_pack_b;
    pack.dtype = access.storage;
    pack.changed_mask = product.keep_b ? kept_mask(lowering, product.b) : part.mask;
    pack.extents[1] = code_.extent_register(elements_of(product, part.k, part.depth), -1);
    pack.extents[2] = columns_extent(product, part);
    pack.operand_count = 2;
    pack.operands[0] = panel_buffer(product, part, product.keep_b && pack.changed_mask != 0);
    pack.operands[1] = from;
    code_.instructions.push_back(pack);
    return pack.operands[0];
  }

  TileOperand panel_buffer(const BlockedProduct& product, const Part& part, bool kept) {
    const int64_t columns = blocks_.columns_per_panel;
    const int64_t padded = ceil_div(part.columns, columns) * columns;
    const int64_t rows = panel_rows(product, part.depth);
    TileOperand panels;
    panels.index = code_.add_buffer(padded * rows * blocks_.element_bytes, kept);
    panels.outer = stride(rows * columns);
    panels.middle = stride(step_rows(product) * columns);
    panels.inner = 1;
    return panels;
  }

  // Panels packed at load: [batch][panel][k][columns].
  TileOperand operand_panels(Lowering& lowering, const BlockedProduct& product, const Part& part) {
    const int64_t columns = blocks_.columns_per_panel;
    TileOperand from;
    from.space = Space::pointer;
    from.index = code_.pointer_register(panel_pointer(product, part));
    from.outer = stride(packed_rows(product) * columns);
    from.middle = stride(step_rows(product) * columns);
    from.inner = 1;
    if (target_.unified_memory) return from;
    TileInstruction load;
    load.family = Family::d_load_view;
    load.dtype = bundle_ > 1 || product.block > 0 ? kBundle : problem_.access_of(product.b).storage;
    load.changed_mask = kept_mask(lowering, product.b);
    load.extents[0] = code_.extent_register(ceil_div(part.columns, columns), -1);
    load.extents[1] = code_.extent_register(panel_rows(product, part.depth), -1);
    load.extents[2] = code_.extent_register(columns, -1);
    load.operand_count = 2;
    const TileOperand panels = panel_buffer(product, part, load.changed_mask != 0);
    load.operands[0] = panels;
    load.operands[0].middle = stride(columns);
    load.operands[1] = from;
    load.operands[1].middle = stride(columns);
    code_.instructions.push_back(load);
    return panels;
  }

  // Rows of a panel that so many steps are, and those of one step, or of a block of them.
  static int64_t panel_rows(const BlockedProduct& product, int64_t steps) {
    return product.block > 0 ? ceil_div(steps, product.block) * product.block_rows : steps;
  }
  static int64_t step_rows(const BlockedProduct& product) {
    return product.block > 0 ? product.block_rows : 1;
  }

  // Of k in the panels, which may hold more of it than the plan multiplies.
  int64_t packed_k(const BlockedProduct& product) const {
    const int64_t whole = problem_.access_of(product.b).panel_k;
    return whole > 0 ? whole : product.k;
  }
  int64_t packed_rows(const BlockedProduct& product) const {
    return panel_rows(product, ceil_div(packed_k(product), bundle_));
  }

  PointerRegister panel_pointer(const BlockedProduct& product, const Part& part) const {
    const NormalAccess& access = problem_.access_of(product.b);
    const int64_t columns = blocks_.columns_per_panel;
    const int64_t rows = packed_rows(product);
    const int64_t entry = ceil_div(product.n, columns) * columns * rows;
    const int64_t bytes = problem_.panel_bytes(product);
    PointerRegister pointer;
    pointer.buffer = access.value;
    const int64_t first = panel_rows(product, access.panel_first / bundle_ + part.k);
    pointer.base = (first * columns + part.n * rows) * bytes;
    pointer.high = entry * bytes;
    for (int axis = 0; axis < plan_.rank; ++axis) {
      const TileAxis& a = code_.space.axes[axis];
      if (axis == product.n_axis && a.dim >= 0) {
        pointer.steps[a.dim] = a.tile * rows * bytes;
      }
      if (axis == plan_.piece_axis && a.dim >= 0) {
        pointer.steps[a.dim] = product.steps * columns * bytes;
      }
      if (problem_.has_role(axis) || axis == plan_.piece_axis) continue;
      const int64_t dense = packed_k(product) * product.n;
      const int64_t step = packed_stride(access.strides[axis], dense, entry) * bytes;
      if (a.dim >= 0) pointer.steps[a.dim] = step;
      pointer.high += step * (a.whole - 1);
    }
    return pointer;
  }

  // Batch strides of packed operands are those of the dense constant [batch..., k, n] or, where
  // that is not what they are multiples of, of the packed entries.
  static int64_t packed_stride(int64_t stride, int64_t dense, int64_t entry) {
    return stride % dense == 0 ? stride / dense * entry : stride;
  }

  const CubeProblem& problem_;
  const NormalPlan& plan_;
  const Target& target_;
  const BlockProblem& blocks_;
  const DType dtype_;
  const int64_t bundle_;
  TileCode& code_;
  LoweringScratch& scratch_;
  BlockedProduct outers_[kMaxProducts], inner_;
  size_t outer_count_ = 0;
  BlockShape shape_;
  bool in_place_ = false;     // windows are read where they lie
  bool transformed_ = false;  // and multiplied by way of transforms
};

}  // namespace

bool lower_cube(const CubeProblem& problem, double shrink, TileCode& code,
                LoweringScratch& scratch) {
  return CubeLowering(problem, code, scratch).run(shrink);
}

}  // namespace dvm
