#include "vm/cube_operands.h"

#include <algorithm>

#include "kernels/numbers.h"

namespace dvm {
namespace {

// Rows of a panel that so many steps are, and those of one step, or of a block of them.
int64_t panel_rows(const BlockedProduct& product, int64_t steps) {
  return product.block > 0 ? ceil_div(steps, product.block) * product.block_rows : steps;
}

int64_t step_rows(const BlockedProduct& product) {
  return product.block > 0 ? product.block_rows : 1;
}

// Batch strides of packed operands are those of the dense constant [batch..., k, n] or, where
// that is not what they are multiples of, of the packed entries.
int64_t packed_stride(int64_t stride, int64_t dense, int64_t entry) {
  return stride % dense == 0 ? stride / dense * entry : stride;
}

}  // namespace

CubeOperands::CubeOperands(const CubeProblem& problem, int64_t rows, TileCode& code,
                           Lowering& lowering)
    : problem_(problem),
      plan_(problem.plan()),
      target_(problem.target()),
      blocks_(problem.blocks()),
      dtype_(problem.dtype()),
      bundle_(problem.bundle()),
      rows_(rows),
      code_(code),
      lowering_(lowering) {}

uint8_t CubeOperands::part_of(int axis, int64_t elements) {
  const TileAxis& a = code_.space.axes[axis];
  if (!a.open.is_open()) return code_.extent_register(elements, -1);
  if (elements != a.whole) code_.overflow = true;  // parts might begin behind the end
  return code_.extent_register(1, a.dim);
}

uint8_t CubeOperands::columns_extent(const BlockedProduct& product, const BlockOfB& part) {
  return product.blocks_columns ? part_of(product.n_axis, part.columns)
                                : code_.extent_of(product.n_axis);
}

// Elements of k that so many steps from step `first` on are.
int64_t CubeOperands::elements_of(const BlockedProduct& product, int64_t first,
                                  int64_t depth) const {
  return std::min(depth * bundle_, product.k - first * bundle_);
}

TileOperand CubeOperands::rows_of(const TileValue& value, int64_t offset) {
  TileOperand rows = lowering_.emitter().operand(value, offset);
  rows.middle = code_.stride(value.strides[plan_.m_axis]);
  rows.inner = 1;
  return rows;
}

TileValue CubeOperands::room_for_bundles(int64_t steps, int axis, bool kept) {
  const int64_t row = packed_row(steps, blocks_.element_bytes, target_);
  TileValue rows;
  rows.index = code_.add_buffer(rows_ * row * blocks_.element_bytes, kept);
  rows.dtype = kBundle;
  rows.strides[plan_.m_axis] = row;
  rows.strides[axis] = 1;
  return rows;
}

// Packs rows of A; where from is left open.
TileInstruction CubeOperands::pack_bundles(const TileValue& to, DType from, int64_t depth,
                                           uint8_t mask) {
  TileInstruction pack;
  pack.family = Family::d_pack_a_bundles;
  pack.dtype = from;
  pack.changed_mask = mask;
  pack.extents[1] = code_.extent_of(plan_.m_axis);
  pack.extents[2] = code_.extent_register(depth, -1);
  pack.operand_count = 2;
  pack.operands[0] = rows_of(to, 0);
  return pack;
}

void CubeOperands::bundle(BlockedProduct& product) {
  TileOperand from = lowering_.emitter().operand(product.computed_a, 0);
  from.middle = code_.stride(product.computed_a.strides[plan_.m_axis]);
  from.inner = code_.stride(product.computed_a.strides[product.k_axis]);
  const uint8_t mask = lowering_.begin(product.a, Family::d_pack_a_bundles, dtype_).changed_mask;
  product.computed_a = room_for_bundles(product.steps, product.k_axis, true);
  TileInstruction pack = pack_bundles(product.computed_a, dtype_, product.k, mask);
  pack.operands[1] = from;
  code_.instructions.push_back(pack);
}

TileOperand CubeOperands::a(const BlockedProduct& product, int64_t k, int64_t depth, uint8_t mask) {
  const bool computed = problem_.is_computed(product.a);
  if (computed || !product.pack_a) {
    const TileValue value = computed
                                ? product.computed_a
                                : lowering_.access_value(plan_.nodes[product.a].access, dtype_);
    // In place, its elements are counted, not bundles of them.
    const int64_t elements = computed ? 1 : bundle_;
    TileOperand a = lowering_.emitter().operand(value, k * (product.k == 1 ? 0 : elements));
    a.middle = code_.stride(value.strides[plan_.m_axis] / elements);
    a.inner = 1;
    return a;
  }
  if (plan_.nodes[product.a].op == PlanOp::patches_) {
    return patches(product, k, depth, mask);
  }
  const NormalAccess& access = problem_.access_of(product.a);
  TileInstruction pack;
  pack.family = bundle_ > 1 ? Family::d_pack_a_bundles : Family::d_pack_a;
  pack.dtype = access.storage;
  pack.changed_mask = product.keep_a ? kept_mask(product.a) : mask;
  pack.extents[1] = code_.extent_of(plan_.m_axis);
  pack.extents[2] = part_of(product.k_axis, elements_of(product, k, depth));
  pack.operand_count = 2;
  TileOperand& out = pack.operands[0];
  const int64_t row = packed_row(depth, blocks_.element_bytes, target_);
  out.index = code_.add_buffer(rows_ * row * blocks_.element_bytes,
                               product.keep_a && pack.changed_mask != 0);
  out.middle = code_.stride(row);
  out.inner = 1;
  TileOperand& from = pack.operands[1];
  from = lowering_.emitter().operand(
      lowering_.access_value(plan_.nodes[product.a].access, access.storage),
      k * bundle_ * access.strides[product.k_axis]);
  from.middle = code_.stride(access.strides[plan_.m_axis]);
  from.inner = code_.stride(access.strides[product.k_axis]);
  code_.instructions.push_back(pack);
  return out;
}

// Rows of A are the elements of windows over images.
TileOperand CubeOperands::patches(const BlockedProduct& product, int64_t k, int64_t depth,
                                  uint8_t mask) {
  const NormalNode& node = plan_.nodes[product.a];
  const bool whole = problem_.bundled_patches(product.a);  // bundles are moved as they are
  const DType storage = whole ? kBundle : problem_.access_of(product.a).storage;
  TileInstruction pack;
  pack.family = Family::d_pack_patches;
  pack.dtype = storage;
  pack.changed_mask = product.keep_a ? kept_mask(product.a) : mask;
  const int64_t elements = whole ? depth : elements_of(product, k, depth);
  pack.extents[1] = code_.extent_of(plan_.m_axis);
  pack.extents[2] = code_.extent_register(elements, -1);
  pack.operand_count = 3;
  const int64_t row = patch_row(elements);
  TileOperand& out = pack.operands[0];
  out.index = code_.add_buffer(rows_ * row * blocks_.element_bytes,
                               product.keep_a && pack.changed_mask != 0);
  out.middle = code_.stride(row);
  out.inner = 1;
  pack.operands[1] = lowering_.emitter().operand(lowering_.access_value(node.access, storage), 0);
  pack.operands[2] =
      lowering_.emitter().operand(lowering_.access_value(node.numbers, DType::i64), 0);
  pack.operands[2].middle = code_.stride(plan_.accesses[node.numbers].strides[plan_.m_axis]);
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
  TileInstruction bundles = pack_bundles(rows, dtype_, elements, pack.changed_mask);
  bundles.operands[1] = out;
  code_.instructions.push_back(bundles);
  return bundles.operands[0];
}

// Elements between rows of packed patches: whole vectors, and no multiple of what makes many rows
// fall into one set of a cache.
int64_t CubeOperands::patch_row(int64_t depth) const {
  const int64_t vector = target_.vector_bytes / blocks_.element_bytes;
  const int64_t row = ceil_div(depth, vector) * vector;
  return shares_sets(row * blocks_.element_bytes, target_) ? row + vector : row;
}

uint8_t CubeOperands::kept_mask(int32_t node) const {
  return lowering_.changed_mask(code_.space.dims_of(plan_.nodes[node].axes));
}

TileOperand CubeOperands::b(const BlockedProduct& product, const BlockOfB& part) {
  const int columns = blocks_.columns_per_panel;
  if (product.panels) return panels(product, part);
  const NormalAccess& access = problem_.access_of(product.b);
  TileOperand from = lowering_.emitter().operand(
      lowering_.access_value(plan_.nodes[product.b].access, access.storage),
      part.k * bundle_ * access.strides[product.k_axis] + part.n * access.strides[product.n_axis]);
  from.middle = code_.stride(access.strides[product.k_axis]);
  if (!product.pack_b) {
    from.inner =
        product.columns_b && product.n > 1 ? code_.stride(access.strides[product.n_axis]) : 1;
    from.outer = code_.stride(int64_t{columns} * from.inner);
    return from;
  }
  from.inner = code_.stride(access.strides[product.n_axis]);
  TileInstruction pack;
  pack.family = bundle_ > 1 ? Family::d_pack_b_bundles : Family::d_pack_b;
  pack.dtype = access.storage;
  pack.changed_mask = product.keep_b ? kept_mask(product.b) : part.mask;
  pack.extents[1] = part_of(product.k_axis, elements_of(product, part.k, part.depth));
  pack.extents[2] = columns_extent(product, part);
  pack.operand_count = 2;
  pack.operands[0] = panel_buffer(product, part, product.keep_b && pack.changed_mask != 0);
  pack.operands[1] = from;
  code_.instructions.push_back(pack);
  return pack.operands[0];
}

TileOperand CubeOperands::panel_buffer(const BlockedProduct& product, const BlockOfB& part,
                                       bool kept) {
  const int64_t columns = blocks_.columns_per_panel;
  const int64_t padded = ceil_div(part.columns, columns) * columns;
  const int64_t rows = panel_rows(product, part.depth);
  TileOperand panels;
  panels.index = code_.add_buffer(padded * rows * blocks_.element_bytes, kept);
  panels.outer = code_.stride(rows * columns);
  panels.middle = code_.stride(step_rows(product) * columns);
  panels.inner = 1;
  return panels;
}

// Panels packed at load: [batch][panel][k][columns].
TileOperand CubeOperands::panels(const BlockedProduct& product, const BlockOfB& part) {
  const int64_t columns = blocks_.columns_per_panel;
  TileOperand from;
  from.space = Space::pointer;
  from.index = code_.pointer_register(panel_pointer(product, part));
  from.outer = code_.stride(packed_rows(product) * columns);
  from.middle = code_.stride(step_rows(product) * columns);
  from.inner = 1;
  if (target_.unified_memory) return from;
  TileInstruction load;
  load.family = Family::d_load_view;
  load.dtype = bundle_ > 1 || product.block > 0 ? kBundle : problem_.access_of(product.b).storage;
  load.changed_mask = kept_mask(product.b);
  load.extents[0] = code_.extent_register(ceil_div(part.columns, columns), -1);
  load.extents[1] = code_.extent_register(panel_rows(product, part.depth), -1);
  load.extents[2] = code_.extent_register(columns, -1);
  load.operand_count = 2;
  const TileOperand panels = panel_buffer(product, part, load.changed_mask != 0);
  load.operands[0] = panels;
  load.operands[0].middle = code_.stride(columns);
  load.operands[1] = from;
  load.operands[1].middle = code_.stride(columns);
  code_.instructions.push_back(load);
  return panels;
}

// Of k in the panels, which may hold more of it than the plan multiplies.
int64_t CubeOperands::packed_k(const BlockedProduct& product) const {
  const int64_t whole = problem_.access_of(product.b).panel_k;
  return whole > 0 ? whole : product.k;
}

int64_t CubeOperands::packed_rows(const BlockedProduct& product) const {
  return panel_rows(product, ceil_div(packed_k(product), bundle_));
}

PointerRegister CubeOperands::panel_pointer(const BlockedProduct& product,
                                            const BlockOfB& part) const {
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
    if (problem_.plan().has_role(axis) || axis == plan_.piece_axis) continue;
    const int64_t dense = packed_k(product) * product.n;
    const int64_t step = packed_stride(access.strides[axis], dense, entry) * bytes;
    if (a.dim >= 0) pointer.steps[a.dim] = step;
    pointer.high += step * (a.whole - 1);
  }
  return pointer;
}

}  // namespace dvm
