#include "vm/product.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/numbers.h"
#include "vm/panels.h"

namespace dvm {
namespace {

constexpr int64_t kMostSlots = 2;  // of L0A and of L0B

bool is_multiplied(DType storage) { return (dtype_list::ROUNDED & dtype_list::bit(storage)) != 0; }

// Follows what is done to the product until it is stored.
class Description {
 public:
  Description(const NormalPlan& plan, const Target& target) : plan_(plan), target_(target) {}

  ProductPlan run() {
    ProductPlan none;
    if (!target_.has_cube_memories()) return none;
    int products = 0;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (plan_.nodes[i].op != PlanOp::matmul_) continue;
      node_ = static_cast<int32_t>(i);
      ++products;
    }
    if (products != 1 || !operands() || !results()) return none;
    // Nothing else is in the plan.
    if (used_ != static_cast<int>(plan_.nodes.size())) return none;
    count();
    return product_;
  }

 private:
  const NormalNode& node(int32_t i) const { return plan_.nodes[i]; }
  const NormalAccess& access(int32_t node) const {
    return plan_.accesses[plan_.nodes[node].access];
  }

  bool operands() {
    const NormalNode& product = node(node_);
    const int32_t a = product.inputs[0], b = product.inputs[1];
    if (node(a).op != PlanOp::load_ || node(b).op != PlanOp::load_) return false;
    product_.multiplied = access(a).storage;
    if (access(b).storage != product_.multiplied || access(b).packed_panels) return false;
    const bool rounds = product.narrow_to == DType::bf16 && product_.multiplied != DType::bf16;
    if (product.dtype != DType::f32 || rounds || !is_multiplied(product_.multiplied)) return false;
    product_.a = node(a).access;
    product_.b = node(b).access;
    used_ = a == b ? 2 : 3;
    return true;
  }

  // The only user of what is at hand; -1: there are several.
  int32_t user() const {
    int32_t user = -1;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      for (const int32_t input : plan_.nodes[i].inputs) {
        if (input != node_) continue;
        if (user >= 0) return -1;
        user = static_cast<int32_t>(i);
      }
    }
    return user;
  }

  bool results() {
    for (bool narrowed = false;;) {
      const int32_t next = user();
      if (next < 0) return false;
      const NormalNode& n = node(next);
      const int32_t other = n.inputs[n.inputs[0] == node_ ? 1 : 0];
      ++used_;
      switch (n.op) {
        case PlanOp::add_:
          if (narrowed || product_.bias >= 0 || product_.relu || !is_bias(other)) return false;
          product_.bias = node(other).access;
          ++used_;
          break;
        case PlanOp::max_:
          if (narrowed || node(other).op != PlanOp::fill_ || node(other).immediate != 0)
            return false;
          product_.relu = true;
          ++used_;
          break;
        case PlanOp::narrow_:
          if (!is_multiplied(n.narrow_to)) return false;
          narrowed_to_ = n.narrow_to;
          narrowed = true;
          break;
        case PlanOp::store_: product_.c = n.access; return stores(n, narrowed);
        default: return false;
      }
      node_ = next;
    }
  }

  bool is_bias(int32_t load) const {
    return target_.bias_bytes > 0 && node(load).op == PlanOp::load_ && uses(load) == 1 &&
           node(load).axes == bit(plan_.n_axis) && is_multiplied(access(load).storage);
  }

  int uses(int32_t i) const {
    int count = 0;
    for (const NormalNode& each : plan_.nodes) {
      for (const int32_t input : each.inputs) count += input == i;
    }
    return count;
  }

  bool stores(const NormalNode& store, bool narrowed) const {
    const DType storage = plan_.accesses[store.access].storage;
    return is_multiplied(storage) && (!narrowed || storage == narrowed_to_) &&
           store.axes == node(node_).axes;
  }

  void count() {
    ProductProblem& p = product_.problem;
    p.m = plan_.extents[plan_.m_axis];
    p.n = plan_.extents[plan_.n_axis];
    p.k = plan_.extents[plan_.k_axis];
    const bool handed = plan_.accesses[product_.a].value == kWorkspace;
    for (int axis = 0; axis < plan_.rank; ++axis) {
      if (axis == plan_.m_axis || axis == plan_.n_axis || axis == plan_.k_axis) continue;
      p.batch *= plan_.extents[axis];
      if (plan_.accesses[product_.a].strides[axis] != 0) p.a_batch *= plan_.extents[axis];
      if (plan_.accesses[product_.b].strides[axis] != 0) p.b_batch *= plan_.extents[axis];
    }
    p.element_bytes = static_cast<int64_t>(size_of(product_.multiplied));
    const auto left = static_cast<double>(p.a_batch * p.m * p.k * p.element_bytes);
    const bool stays = handed && left <= kHeld * static_cast<double>(target_.shared_bytes);
    p.left_bytes = stays ? 0 : static_cast<double>(p.element_bytes);
    p.result_bytes = plan_.accesses[product_.c].element_bytes;
    p.bias = product_.bias >= 0;
  }

  const NormalPlan& plan_;
  const Target& target_;
  ProductPlan product_;
  int32_t node_ = -1;
  int used_ = 0;
  DType narrowed_to_ = DType::f32;
};

class ProductLowering {
 public:
  ProductLowering(const NormalPlan& plan, const ProductPlan& product, const ProductBlock& block,
                  const Target& target, TileCode& code)
      : plan_(plan), product_(product), block_(block), target_(target), code_(code) {}

  bool run() {
    lay_out_grid();
    const TileOperand a = load(product_.a, plan_.m_axis, plan_.k_axis, block_.rows);
    const TileOperand b = load(product_.b, plan_.n_axis, plan_.k_axis, block_.columns);
    if (product_.bias >= 0) load_bias();
    for (int half = 0; half < block_.halves; ++half)
      sums_[half] = local(Memory::l0c, block_.rows, half_columns(), sizeof(float), true);
    for (int64_t slot = 0; slot < target_.places; ++slot) {
      a_[slot] = local(Memory::l0a, block_.rows, block_.step, bytes(), true);
      b_[slot] = local(Memory::l0b, block_.step, half_columns(), bytes(), true);
    }
    const int64_t depth = std::min(block_.chunk, product_.problem.k);
    for (int half = 0; half < block_.halves; ++half) {
      for (int64_t s = 0; s * block_.step < depth; ++s) multiply(a, b, s, half);
    }
    for (int half = 0; half < block_.halves; ++half) store(half);
    return !code_.overflow;
  }

 private:
  int64_t bytes() const { return product_.problem.element_bytes; }
  int64_t half_columns() const { return block_.half; }

  void lay_out_grid() {
    code_.space.rank = plan_.rank;
    for (int axis = 0; axis < plan_.rank; ++axis)
      code_.space.axes[axis] = {plan_.extents[axis], 1, -1};
    code_.space.axes[plan_.m_axis].tile = block_.rows;
    code_.space.axes[plan_.n_axis].tile = block_.columns;
    code_.space.axes[plan_.k_axis].tile = block_.chunk;
    for (const int axis : {plan_.m_axis, plan_.n_axis, plan_.k_axis}) {
      TileAxis& a = code_.space.axes[axis];
      a.tile = std::min(a.tile, a.whole);
    }
    for (int axis = 0; axis < plan_.rank; ++axis) {
      if (axis != plan_.m_axis && axis != plan_.n_axis && axis != plan_.k_axis) code_.add_dim(axis);
    }
    code_.add_dim(block_.rows_outer ? plan_.m_axis : plan_.n_axis);
    code_.add_dim(block_.rows_outer ? plan_.n_axis : plan_.m_axis);
    code_.chunk_dim = static_cast<int>(code_.grid.size());
    code_.add_dim(plan_.k_axis);
  }

  // Of k in a step, which may be behind the end of the last chunk.
  uint8_t extent_of_step(int64_t step) {
    const TileAxis& k = code_.space.axes[plan_.k_axis];
    if (k.ragged()) return code_.part_register(block_.step, k.dim, step);
    return code_.extent_register(std::min(block_.step, k.tile - step * block_.step), -1);
  }

  // Of the columns in a half, which may be behind the end of n.
  uint8_t extent_of_half(int half) {
    const TileAxis& n = code_.space.axes[plan_.n_axis];
    if (block_.halves == 1) return code_.extent_of(plan_.n_axis);
    if (n.ragged()) return code_.part_register(half_columns(), n.dim, half);
    return code_.extent_register(
        std::clamp<int64_t>(n.tile - half * half_columns(), 0, half_columns()), -1);
  }

  // Rows of a local memory, which begin at its blocks.
  TileOperand local(Memory memory, int64_t rows, int64_t columns, int64_t element, bool kept,
                    bool two_places = false) {
    const int64_t align = std::max<int64_t>(1, target_.line_bytes / element);
    const int64_t row = ceil_div(columns, align) * align;
    TileOperand tile;
    tile.index =
        code_.add_buffer(rows * row * element, kept, memory, two_places && target_.places > 1);
    tile.middle = code_.stride(row);
    tile.inner = 1;
    return tile;
  }

  TileOperand global(int32_t access, int middle_axis, int inner_axis, int64_t first = 0) {
    const NormalAccess& a = plan_.accesses[access];
    TileOperand tile;
    tile.space = Space::pointer;
    tile.index = code_.pointer_register(pointer_of(a, code_.space, first * a.strides[inner_axis]));
    tile.middle = code_.stride(middle_axis < 0 ? 0 : a.strides[middle_axis]);
    tile.inner = code_.stride(a.strides[inner_axis]);
    return tile;
  }

  // The slot of a ring at hand from a byte on, with rows of so many elements.
  TileOperand ring(const RingPlace& ring, int64_t first, int64_t row, int64_t chunk_step) {
    PointerRegister slot;
    slot.buffer = kWorkspace;
    slot.low = ring.first;
    slot.base = slot.low + first;
    slot.high = ring.end();
    const int chunks = code_.space.axes[plan_.k_axis].dim;
    if (chunks >= 0) slot.steps[chunks] = chunk_step;
    TileOperand tile;
    tile.space = Space::pointer;
    tile.index = code_.pointer_register(slot);
    tile.middle = code_.stride(row);
    tile.inner = 1;
    return tile;
  }
  // Columns of sums: their rows are those of a full block.
  TileOperand sums_ring(int64_t first) {
    return ring(product_.sums, first * static_cast<int64_t>(sizeof(float)), block_.columns, 0);
  }
  TileOperand rows_ring() {
    return ring(product_.rows, 0, row_of_slot(product_.problem, target_), block_.chunk * bytes());
  }

  // The last one of the code, until another is added.
  TileInstruction& add(Family family, DType dtype, uint8_t e1, uint8_t e2) {
    TileInstruction& made = code_.instructions.emplace_back(kNoInstruction);
    made.family = family;
    made.dtype = dtype;
    made.extents[1] = e1;
    made.extents[2] = e2;
    made.operand_count = static_cast<uint8_t>(form_info(family).operand_count());
    return made;
  }

  // A chunk of an operand comes to L1 with the rows that it has in memory. Returns it with the
  // steps along its own axis as middle and those along k as inner stride.
  TileOperand load(int32_t access, int axis, int k_axis, int64_t extent) {
    const NormalAccess& from = plan_.accesses[access];
    const bool fed = axis == plan_.m_axis && product_.rows.slots > 0;
    const bool along_k = fed || from.strides[k_axis] == 1 || from.strides[axis] != 1;
    const int rows = along_k ? axis : k_axis, columns = along_k ? k_axis : axis;
    TileOperand chunk = along_k ? local(Memory::l1, extent, block_.chunk, bytes(), false, true)
                                : local(Memory::l1, block_.chunk, extent, bytes(), false, true);
    TileInstruction& load = add(Family::d_load_l1, product_.multiplied, code_.extent_of(rows),
                                code_.extent_of(columns));
    load.operands[0] = chunk;
    load.operands[1] = fed ? rows_ring() : global(access, rows, columns);
    if (!along_k) std::swap(chunk.middle, chunk.inner);
    return chunk;
  }

  // For the first chunk, which begins with it.
  void load_bias() {
    const DType storage = plan_.accesses[product_.bias].storage;
    const auto element = static_cast<int64_t>(size_of(storage));
    const uint8_t columns = code_.extent_of(plan_.n_axis);
    TileInstruction& load = add(Family::d_load_l1, storage, 0, columns);
    load.flags = kFirstChunk;
    const TileOperand row = local(Memory::l1, 1, block_.columns, element, false, true);
    load.operands[0] = row;
    load.operands[1] = global(product_.bias, -1, plan_.n_axis);
    bias_ = local(Memory::bias, 1, block_.columns, sizeof(float), true);
    TileInstruction& on = add(Family::d_load_bias, storage, 0, columns);
    on.flags = kFirstChunk;
    on.operands[0] = bias_;
    on.operands[1] = row;
  }

  // Step number s of the chunk, for a half of the block.
  void multiply(const TileOperand& a, const TileOperand& b, int64_t s, int half) {
    const uint8_t rows = code_.extent_of(plan_.m_axis), columns = extent_of_half(half);
    const uint8_t depth = extent_of_step(s);
    const int64_t first = s * block_.step * bytes();
    const int64_t slot = turn_++ % target_.places;
    TileInstruction& left = add(Family::d_load_l0a, product_.multiplied, rows, depth);
    left.operands[0] = a_[slot];
    left.operands[1] = a;
    left.operands[1].offset = first * a.inner;
    TileInstruction& right = add(Family::d_load_l0b, product_.multiplied, depth, columns);
    right.operands[0] = b_[slot];
    right.operands[1] = b;
    right.operands[1].offset = first * b.inner + half * half_columns() * bytes() * b.middle;
    std::swap(right.operands[1].middle, right.operands[1].inner);
    const bool begins = s == 0 && product_.bias >= 0;
    TileInstruction& mmad =
        add(begins ? Family::m_mmad_bias : Family::m_mmad, product_.multiplied, depth, columns);
    mmad.extents[0] = rows;
    mmad.flags = s == 0 ? kAccumulate : kAccumulateAlways;
    mmad.operands[0] = sums_[half];
    mmad.operands[1] = a_[slot];
    mmad.operands[2] = b_[slot];
    if (begins) {
      mmad.operands[3] = bias_;
      mmad.operands[3].offset = half * half_columns() * static_cast<int64_t>(sizeof(float));
    }
  }

  void store(int half) {
    const int64_t first = half * half_columns();
    TileInstruction& store = add(product_.relu ? Family::d_store_l0c_relu : Family::d_store_l0c,
                                 plan_.accesses[product_.c].storage, code_.extent_of(plan_.m_axis),
                                 extent_of_half(half));
    store.flags = kLastChunk;
    store.operands[0] = product_.sums.slots > 0
                            ? sums_ring(first)
                            : global(product_.c, plan_.m_axis, plan_.n_axis, first);
    store.operands[1] = sums_[half];
  }

  const NormalPlan& plan_;
  const ProductPlan& product_;
  const ProductBlock& block_;
  const Target& target_;
  TileCode& code_;
  TileOperand sums_[kMostHalves], bias_;
  int turn_ = 0;  // of the places in L0A and L0B
  TileOperand a_[kMostSlots], b_[kMostSlots];
};

}  // namespace

void read_packed_rows(NormalPlan& plan, const Target& target) {
  for (const NormalNode& node : plan.nodes) {
    if (node.op != PlanOp::matmul_ || node.dtype != DType::f32 || node.narrow_to != DType::f32)
      continue;
    NormalAccess& b = plan.accesses[plan.nodes[node.inputs[1]].access];
    if (!b.packed_panels || b.block > 0 || !packs_rows(b.storage, target)) continue;
    const bool inner = plan.is_inner(node);
    const int n_axis = inner ? plan.k_axis : plan.n_axis;
    const int k_axis = inner ? plan.inner_k_axis : plan.k_axis;
    const int64_t n = plan.extents[n_axis], k = b.panel_k > 0 ? b.panel_k : plan.extents[k_axis];
    const int64_t columns = panel_columns(b.storage, target);
    const int64_t row = ceil_div(n, columns) * columns;
    // Batch strides are those of the dense matrices, or multiples of the packed ones.
    for (int axis = 0; axis < plan.rank; ++axis) {
      int64_t& stride = b.strides[axis];
      if (axis == n_axis || axis == k_axis || stride == 0) continue;
      if (stride % (k * n) == 0) stride = stride / (k * n) * k * row;
    }
    b.strides[k_axis] = row;
    b.strides[n_axis] = 1;
    b.offset = b.panel_first * row;
    b.packed_panels = false;
  }
}

const char* lacking(const KernelPlan& plan, const ValueInfo* values) {
  const PlanNode* product = nullptr;
  for (const PlanNode& node : plan.nodes) {
    if (node.op == PlanOp::patches_) return "patches of an image";
    if (node.op != PlanOp::matmul_) continue;
    if (product != nullptr) return "a product of a product";
    product = &node;
  }
  if (product == nullptr) return nullptr;
  const PlanNode& b = plan.nodes[static_cast<size_t>(product->inputs[1])];
  if (product->dtype == DType::f64) return "f64";
  if (product->dtype != DType::f32) return "integers";
  if (b.op == PlanOp::gather_) return "a right operand that is gathered";
  if (b.op != PlanOp::load_) return "a right operand that is computed";
  const DType stored = values[plan.accesses[static_cast<size_t>(b.access)].value].dtype;
  if (!is_multiplied(stored)) return "a right operand that is converted";
  if (product->narrow_to != DType::f32 && stored != product->narrow_to)
    return "operands that are rounded";
  return nullptr;
}

ProductPlan describe_product(const NormalPlan& plan, const Target& target) {
  return Description(plan, target).run();
}

bool lower_product(const NormalPlan& plan, const ProductPlan& product, const ProductBlock& block,
                   const Target& target, TileCode& code) {
  return ProductLowering(plan, product, block, target, code).run();
}

}  // namespace dvm
