#include "vm/lower.h"

#include <bit>
#include <stdexcept>
#include <string_view>

#include "kernels/numbers.h"
#include "vm/ending.h"
#include "vm/repeated_rows.h"

namespace dvm {
namespace {

constexpr size_t kCompact = 8;  // instructions of one node worth more than a detour through local
constexpr int64_t kLeastReads = 4;  // of what is spread: to spread it costs as much as to read it

// The instruction that computes what an operator of this name does; count_: there is none.
consteval Family family_named(std::string_view name) {
  constexpr std::string_view kNames[] = {
#define DVM_INSN(name, queue, form, dtypes, meaning) #name,
#include "vm/isa.def"
#undef DVM_INSN
  };
  for (int f = 0; f < kFamilies; ++f) {
    const bool computes =
        kNames[f].starts_with("v_") || kNames[f].starts_with("m_") || kNames[f] == "d_lookup";
    if (computes && kNames[f].substr(2) == name) return static_cast<Family>(f);
  }
  return Family::count_;
}

constexpr Family kFamilyOf[] = {
#define DVM_PLAN_OP(name, kind, arity) family_named(#name),
#include "kernels/ops.def"
#undef DVM_PLAN_OP
};

Family cast_to(DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16: return Family::v_cast_from_f32;
    case DType::f32: return Family::v_cast_to_f32;
    case DType::f64: return Family::v_cast_to_f64;
    case DType::i32: return Family::v_cast_to_i32;
    case DType::i64: return Family::v_cast_to_i64;
    default: return Family::v_cast_to_b8;
  }
}

}  // namespace

bool is_lazy(PlanOp op) {
  return op == PlanOp::load_ || op == PlanOp::fill_ || op == PlanOp::iota_ ||
         op == PlanOp::patches_;
}

Family family_of(PlanOp op) { return kFamilyOf[static_cast<int>(op)]; }

Family family_of(const NormalPlan& plan, const NormalNode& node) {
  if (node.op != PlanOp::cast_) return family_of(node.op);
  // Of bytes that stay such (vm/bytes.h) some are no 0 or 1 yet.
  const bool same = plan.nodes[node.inputs[0]].dtype == node.dtype && node.dtype != DType::b8;
  return same ? Family::v_copy : cast_to(node.dtype);
}

DType dtype_of_map(const NormalPlan& plan, const NormalNode& map) {
  if (map.signed_bytes) return DType::i8;
  if (map.op == PlanOp::lookup_) return plan.accesses[map.weights].storage;
  if (map.op == PlanOp::narrow_) return map.narrow_to;
  const bool rounds = family_of(plan, map) == Family::v_cast_from_f32;
  return rounds || map.op == PlanOp::select_ ? map.dtype : plan.nodes[map.inputs[0]].dtype;
}

Lowering::Lowering(const NormalPlan& plan, const Target& target, TileCode& code,
                   LoweringScratch& scratch, uint32_t chunk_axes)
    : plan_(plan),
      target_(target),
      code_(code),
      nodes_(scratch.nodes),
      chunk_axes_(chunk_axes),
      emitter_(code, plan) {
  nodes_.assign(plan.nodes.size(), {});
  for (int axis = 0; axis < code.space.rank; ++axis) {
    if (code.space.axes[axis].tile > 1) wide_axes_ |= 1u << axis;
  }
  decide_absorption();
}

int Lowering::innermost_axis(uint32_t axes) const {
  return static_cast<int>(std::bit_width(axes & wide_axes_)) - 1;
}

// The consumer's innermost loop can read the load's elements where they lie.
bool Lowering::load_suits(int32_t load, int32_t consumer) const {
  const NormalNode& user = plan_.nodes[consumer];
  const NormalAccess& access = plan_.accesses[plan_.nodes[load].access];
  const int inner = innermost_axis(user.axes | user.reduce_axes);
  if (inner >= 0 && access.strides[inner] != 0 && access.strides[inner] != 1) return false;
  if (user.op != PlanOp::store_ || inner < 0) return true;
  return plan_.accesses[user.access].strides[inner] == 1;
}

// The producer's instruction can write its result where the store wants it.
bool Lowering::store_suits(int32_t store, int32_t producer) const {
  const NormalNode& node = plan_.nodes[store];
  const NormalAccess& access = plan_.accesses[node.access];
  if (node.axes != plan_.nodes[producer].axes) return false;
  const int inner = innermost_axis(node.axes);
  if (inner >= 0 && access.strides[inner] != 1) return false;
  for (int axis = 0; axis < plan_.rank; ++axis) {
    if ((node.axes & wide_axes_ & 1u << axis) && access.strides[axis] == 0) return false;
  }
  return true;
}

void Lowering::decide_absorption() {
  for (size_t j = 0; j < plan_.nodes.size(); ++j) {
    const NormalNode& user = plan_.nodes[j];
    const auto consumer = static_cast<int32_t>(j);
    if (user.op == PlanOp::load_) {
      nodes_[j].elided =
          target_.unified_memory && plan_.accesses[user.access].storage == user.dtype;
    }
    for (const int32_t input : user.inputs) {
      if (input < 0) continue;
      NodeState& state = nodes_[input];
      state.used = true;
      if (plan_.nodes[input].op == PlanOp::load_ && state.elided) {
        state.elided = load_suits(input, consumer);
      }
      if (user.op != PlanOp::store_) {
        state.computed_on = true;
      } else if (plan_.accesses[user.access].storage != plan_.nodes[input].dtype) {
        state.stored_by = -2;  // a converting store reads local memory
        state.elided = false;
      } else if (state.stored_by == -1 && store_suits(consumer, input)) {
        state.stored_by = consumer;
      }
    }
  }
  for (size_t i = 0; i < plan_.nodes.size(); ++i) {
    NodeState& state = nodes_[i];
    // A load that is only stored becomes one memory instruction from place to place.
    if (state.stored_by >= 0 && !state.computed_on) state.elided = false;
    const bool writes_itself =
        target_.unified_memory && !state.elided && plan_.nodes[i].op != PlanOp::fill_;
    if (!writes_itself || state.stored_by < 0) state.stored_by = -1;
  }
}

bool Lowering::streams(int32_t store) const {
  if (store < 0) return false;
  const NormalNode& node = plan_.nodes[store];
  return target_.streams(plan_.accesses[node.access].value_bytes) &&
         (nodes_[node.inputs[0]].stored_by != store || !nodes_[node.inputs[0]].computed_on);
}

uint8_t Lowering::changed_mask(uint32_t dims) const {
  const uint32_t all = (1u << code_.grid.size()) - 1;
  for (size_t d = 0; d < code_.grid.size(); ++d) {  // there is one tile, however many elements
    if (code_.grid[d].count == 1) dims |= 1u << d;
  }
  if (dims == all) return 0;
  return dims == 0 ? kFirstTileOnly : static_cast<uint8_t>(dims);
}

void Lowering::depend_on_inputs(int32_t node) {
  NodeState& state = nodes_[node];
  const NormalNode& n = plan_.nodes[node];
  // What a tile holds of a reduced axis may be a piece of it, a result of its own.
  state.dims = code_.space.dims_of(n.axes | n.reduce_axes);
  for (const int32_t input : n.inputs) {
    if (input < 0) continue;
    lower(input);
    state.dims |= nodes_[input].dims;
    state.late |= nodes_[input].late;
  }
}

Instruction Lowering::begin(int32_t node, Family family, DType dtype) {
  Instruction instruction;
  instruction.family = family;
  instruction.dtype = dtype;
  if (nodes_[node].late) {
    instruction.flags = kLastChunk;
  } else {
    instruction.changed_mask = changed_mask(nodes_[node].dims);
  }
  return instruction;
}

TileValue Lowering::access_value(int32_t access, DType dtype) const {
  TileValue value;
  value.space = Space::pointer;
  value.index = access;
  value.dtype = dtype;
  value.strides = plan_.accesses[access].strides;
  return value;
}

TileValue Lowering::place_for(int32_t node, bool kept) {
  const NormalNode& n = plan_.nodes[node];
  const int32_t store = nodes_[node].stored_by;
  if (store >= 0) return access_value(plan_.nodes[store].access, n.dtype);
  return emitter_.dense_buffer(n.dtype, n.axes, kept);
}

void Lowering::lower_all() {
  for (size_t i = 0; i < plan_.nodes.size(); ++i) {
    if (!is_lazy(plan_.nodes[i].op)) lower(static_cast<int32_t>(i));
  }
}

void Lowering::lower(int32_t node) {
  NodeState& state = nodes_[node];
  if (state.lowered) return;
  state.lowered = true;
  depend_on_inputs(node);
  const NormalNode& n = plan_.nodes[node];
  switch (n.op) {
    case PlanOp::load_:
      if (state.elided) {
        state.value = access_value(n.access, n.dtype);
      } else {
        load_to_local(node);
      }
      break;
    case PlanOp::fill_:
      state.value.space = Space::immediate;
      state.value.dtype = n.dtype;
      state.value.immediate = n.immediate;
      break;
    case PlanOp::store_: lower_store(node); break;
    case PlanOp::gather_: lower_gather(node); break;
    case PlanOp::iota_: lower_iota(node); break;
    case PlanOp::pool_max_:
    case PlanOp::pool_sum_:
    case PlanOp::depthwise_: lower_window(node); break;
    case PlanOp::patches_: throw std::invalid_argument("patches are operand A of a matmul only");
    case PlanOp::matmul_: throw std::invalid_argument("a vector kernel holds a matmul");
    default:
      if (info_of(n.op).kind == PlanOpKind::reduce) {
        lower_reduce(node);
      } else {
        lower_map(node);
      }
  }
}

void Lowering::load_to_local(int32_t node) {
  const NormalNode& n = plan_.nodes[node];
  const DType storage = plan_.accesses[n.access].storage;
  const bool as_stored = is_half(n.dtype);
  Instruction load = begin(node, as_stored ? Family::d_load_stored : Family::d_load_view, storage);
  if (streams(nodes_[node].stored_by)) load.flags |= kStream;
  const TileValue operands[] = {place_for(node, load.changed_mask != 0),
                                access_value(n.access, storage)};
  emitter_.elementwise(load, n.axes, operands, 2, false);
  nodes_[node].value = operands[0];
}

void Lowering::materialise_immediate(int32_t node) {
  TileValue& value = nodes_[node].value;
  if (value.space != Space::immediate) return;
  const Instruction copy = begin(node, Family::v_copy, value.dtype);
  const TileValue operands[] = {emitter_.dense_buffer(value.dtype, 0, copy.changed_mask != 0),
                                value};
  emitter_.elementwise(copy, 0, operands, 2, true);
  value = operands[0];
}

void Lowering::lower_gather(int32_t node) {
  const NormalNode& n = plan_.nodes[node];
  materialise_immediate(n.inputs[0]);
  const DType storage = plan_.accesses[n.access].storage;
  const bool as_stored = is_half(n.dtype);
  Instruction gather = begin(node, as_stored ? Family::d_gather_stored : Family::d_gather, storage);
  gather.extra[0] = static_cast<uint64_t>(n.axis_stride);
  gather.extra[1] = static_cast<uint64_t>(n.limit);
  if (streams(nodes_[node].stored_by)) gather.flags |= kStream;
  const TileValue operands[] = {place_for(node, gather.changed_mask != 0),
                                access_value(n.access, storage), nodes_[n.inputs[0]].value};
  emitter_.elementwise(gather, n.axes, operands, 3, false);
  nodes_[node].value = operands[0];
}

void Lowering::lower_iota(int32_t node) {
  const NormalNode& n = plan_.nodes[node];
  const Instruction iota = begin(node, Family::v_iota, n.dtype);
  const TileValue operands[] = {place_for(node, iota.changed_mask != 0),
                                access_value(n.access, DType::i64)};
  emitter_.elementwise(iota, n.axes, operands, 2, false);
  nodes_[node].value = operands[0];
}

void Lowering::lower_window(int32_t node) {
  const NormalNode& n = plan_.nodes[node];
  const bool of_bytes = n.dtype == DType::i32;
  const Family family = n.op == PlanOp::pool_max_   ? Family::d_pool_max
                        : n.op == PlanOp::pool_sum_ ? Family::d_pool_sum
                        : of_bytes                  ? Family::d_depthwise_bytes
                                                    : Family::d_depthwise;
  Instruction window = begin(node, family, of_bytes ? DType::i8 : n.dtype);
  window.window = static_cast<int32_t>(code_.windows.size());
  code_.windows.push_back(plan_.windows[n.window]);
  TileValue operands[kMaxOperands];
  operands[0] = place_for(node, window.changed_mask != 0);
  operands[1] = access_value(n.access, plan_.accesses[n.access].storage);
  operands[2] = access_value(n.numbers, DType::i64);
  int count = 3;
  if (n.weights >= 0)
    operands[count++] = access_value(n.weights, plan_.accesses[n.weights].storage);
  if (family == Family::d_depthwise) {
    operands[count++].space = Space::immediate;  // 0
    Ending().write(n.dtype, window.extra);
  }
  emitter_.elementwise(window, n.axes, operands, count, false);
  nodes_[node].value = operands[0];
}

// Emits the node's instructions. Where strides in global memory make many instructions of it, goes
// through dense local tiles instead.
template <typename Emit>
void Lowering::emit_compactly(int32_t node, Emit emit) {
  const Mark mark{code_.instructions.size(), code_.pointers.size(), code_.buffers.size()};
  const bool overflow = code_.overflow;
  emit();
  if (code_.instructions.size() - mark.instructions <= kCompact && code_.overflow == overflow) {
    return;
  }
  bool detour = nodes_[node].stored_by >= 0;
  for (const int32_t input : plan_.nodes[node].inputs) detour |= input >= 0 && nodes_[input].elided;
  if (!detour) return;
  code_.instructions.resize(mark.instructions);
  code_.pointers.resize(mark.pointers);
  code_.buffers.resize(mark.buffers);
  code_.overflow = overflow;
  nodes_[node].stored_by = -1;
  for (const int32_t input : plan_.nodes[node].inputs) {
    if (input < 0 || !nodes_[input].elided) continue;
    nodes_[input].elided = false;
    load_to_local(input);
  }
  emit();
}

// Innermost axes that the node lacks, together shorter than a vector, where it has the next one and
// is read again along others. 0: none such.
uint32_t Lowering::short_axes(int32_t node, uint32_t axes) const {
  const uint32_t has = plan_.nodes[node].axes & wide_axes_, lacks = axes & wide_axes_ & ~has;
  if (has == 0) return 0;
  const auto elements = [&](uint32_t some) {
    int64_t count = 1;
    for (; some != 0; some &= some - 1) count *= code_.space.axes[std::countr_zero(some)].tile;
    return count;
  };
  const uint32_t inner = lacks & ~(std::bit_floor(has) - 1);
  for (uint32_t left = inner; left != 0; left &= left - 1)
    if (code_.space.axes[std::countr_zero(left)].ragged()) return 0;
  const int64_t lanes =
      target_.vector_bytes / static_cast<int64_t>(size_of(plan_.nodes[node].dtype));
  return elements(inner) < lanes && elements(lacks & ~inner) >= kLeastReads ? inner : 0;
}

// Where a map over `axes` reads a node's value. A row of it that each few lanes repeat one element
// of is spread over them once: the map runs over whole vectors then.
TileValue Lowering::operand_of(int32_t node, uint32_t axes) {
  NodeState& state = nodes_[node];
  const uint32_t inner = state.value.space == Space::immediate ? 0 : short_axes(node, axes);
  if (inner == 0) return state.value;
  if (state.spread_axes == inner) return state.spread;
  const NormalNode& n = plan_.nodes[node];
  const Instruction copy = begin(node, Family::v_copy, n.dtype);
  const TileValue operands[] = {
      emitter_.dense_buffer(n.dtype, (n.axes & wide_axes_) | inner, copy.changed_mask != 0),
      state.value};
  emitter_.elementwise(copy, n.axes | inner, operands, 2, true);
  state.spread_axes = inner;
  return state.spread = operands[0];
}

void Lowering::lower_map(int32_t node) {
  const NormalNode& n = plan_.nodes[node];
  const bool looks_up = n.op == PlanOp::lookup_;
  const DType dtype = dtype_of_map(plan_, n);
  Instruction map = begin(node, family_of(plan_, n), dtype);
  if (n.op == PlanOp::check_index_) map.extra[0] = static_cast<uint64_t>(n.limit);
  for (const int32_t input : n.inputs) {
    if (input >= 0) operand_of(input, n.axes);  // spread for good, whatever way the map takes
  }
  emit_compactly(node, [&] {
    TileValue operands[kMaxOperands];
    int count = 1;
    if (looks_up) operands[count++] = access_value(n.weights, dtype);
    for (const int32_t input : n.inputs) {
      if (input >= 0) operands[count++] = operand_of(input, n.axes);
    }
    operands[0] = place_for(node, map.changed_mask != 0);
    Instruction placed = map;
    if (streams(nodes_[node].stored_by)) placed.flags |= kStream;
    emitter_.elementwise(placed, n.axes, operands, count, true);
    nodes_[node].value = operands[0];
  });
}

void Lowering::lower_reduce(int32_t node) {
  const NormalNode& n = plan_.nodes[node];
  materialise_immediate(n.inputs[0]);
  const bool accumulates = (n.reduce_axes & chunk_axes_) != 0;
  Instruction reduce = begin(node, family_of(n.op), n.signed_bytes ? DType::i8 : n.dtype);
  if (accumulates) {
    reduce.changed_mask = 0;
    reduce.flags = kAccumulate;
  }
  emit_compactly(node, [&] {
    const TileValue out = place_for(node, accumulates || reduce.changed_mask != 0);
    emitter_.reduce(reduce, n.axes, n.reduce_axes, out, nodes_[n.inputs[0]].value);
    nodes_[node].value = out;
  });
  nodes_[node].late |= accumulates;
}

// What the store of a load reads: short rows that are repeated along several axes lie repeated in
// local memory. Along the outermost of those it repeats them itself.
TileValue Lowering::repeated(int32_t load) {
  TileValue value = nodes_[load].value;
  const RepeatedRows rows = repeated_rows(plan_, target_);
  if (!rows.any()) return value;
  uint32_t axes = plan_.nodes[load].axes & wide_axes_;
  uint32_t repeats = rows.axes & wide_axes_;
  const bool outside = (repeats & (bit(rows.first) - 1)) != 0;
  repeats &= outside ? ~(bit(rows.first) - 1) : repeats - 1;
  while (repeats != 0) {
    const uint32_t inner = std::bit_floor(repeats);
    const Instruction copy = begin(load, Family::v_copy, value.dtype);
    axes |= inner;
    repeats &= ~inner;
    const TileValue operands[] = {emitter_.dense_buffer(value.dtype, axes, copy.changed_mask != 0),
                                  value};
    emitter_.elementwise(copy, axes, operands, 2, true);
    value = operands[0];
  }
  return value;
}

// What was stored in another order than this store has: a transpose, which memory instructions
// know.
bool Lowering::lies_across(const NormalNode& store, const TileValue& source) const {
  const int inner = innermost_axis(store.axes);
  if (inner < 0) return false;
  const int64_t from = source.strides[inner];
  return plan_.accesses[store.access].strides[inner] != 1 || (from != 0 && from != 1);
}

void Lowering::lower_store(int32_t node) {
  const NormalNode& n = plan_.nodes[node];
  const NodeState& source = nodes_[n.inputs[0]];
  if (source.stored_by == node) return;
  const DType storage = plan_.accesses[n.access].storage;
  const bool moves = source.value.space == Space::pointer && !lies_across(n, source.value);
  const Family stores = is_half(n.dtype) ? Family::d_store_stored : Family::d_store_view;
  Instruction store = begin(node, moves ? Family::v_copy : stores, storage);
  if (streams(node)) store.flags |= kStream;
  const TileValue operands[] = {access_value(n.access, storage),
                                moves ? repeated(n.inputs[0]) : source.value};
  emitter_.elementwise(store, n.axes, operands, 2, moves);
}

}  // namespace dvm
