#include "vm/emit.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "kernels/numbers.h"

namespace dvm {
namespace {

constexpr int kMaxUnrolled = 64;  // instructions one operation may take
constexpr int kNumbers = 2;       // operand of windows: their numbers

}  // namespace

TileValue Emitter::dense_buffer(DType dtype, uint32_t axes, bool kept) {
  TileValue value;
  value.dtype = dtype;
  int64_t stride = 1;
  for (int axis = code_.space.rank - 1; axis >= 0; --axis) {
    if (!(axes & bit(axis))) continue;
    value.strides[axis] = stride;
    stride *= code_.space.axes[axis].tile;
  }
  value.index = code_.add_buffer(stride * static_cast<int64_t>(size_of(dtype)), kept);
  return value;
}

TileOperand Emitter::operand(const TileValue& value, int64_t element_offset) {
  TileOperand operand;
  operand.space = value.space;
  switch (value.space) {
    case Space::local:
      operand.index = value.index;
      operand.offset = element_offset * static_cast<int64_t>(size_of(value.dtype));
      break;
    case Space::pointer:
      operand.index = code_.pointer_register(
          pointer_of(plan_.accesses[value.index], code_.space, element_offset));
      break;
    default: operand = TileOperand::of_immediate(value.immediate); break;
  }
  return operand;
}

Emitter::Loops Emitter::loops_over(uint32_t axes, const TileValue* operands, int count) const {
  Loops loops;
  for (int axis = 0; axis < code_.space.rank; ++axis) {
    const TileAxis& a = code_.space.axes[axis];
    if (!(axes & bit(axis)) || a.tile == 1) continue;
    Loop& loop = loops.items[loops.count++];
    loop.extent = a.tile;
    loop.dim = a.ragged() ? a.dim : -1;
    for (int i = 0; i < kMaxOperands; ++i) {
      const bool moves = i < count && operands[i].space != Space::immediate;
      loop.strides[i] = moves ? operands[i].strides[axis] : 0;
    }
  }
  return loops;
}

void Emitter::collapse(Loops& loops, int operand_count) {
  int kept = 0;  // items[0..kept] are done; items[kept] is the loop that may take the next one in
  for (int i = 1; i < loops.count; ++i) {
    const Loop& inner = loops.items[i];
    Loop& outer = loops.items[kept];
    bool merges = inner.dim < 0;
    for (int k = 0; k < operand_count; ++k) {
      merges &= outer.strides[k] == inner.strides[k] * inner.extent;
    }
    if (!merges) {
      loops.items[++kept] = inner;
      continue;
    }
    outer.extent *= inner.extent;
    for (int k = 0; k < operand_count; ++k) outer.strides[k] = inner.strides[k];
  }
  if (loops.count > 0) loops.count = kept + 1;
}

void Emitter::elementwise(const Instruction& instruction, uint32_t axes, const TileValue* operands,
                          int count, bool unit_inner) {
  Loops loops = loops_over(axes, operands, count);
  collapse(loops, count);
  bool unit = loops.count > 0;
  if (unit_inner && unit) {
    const Loop& inner = loops.items[loops.count - 1];
    unit = inner.strides[0] == 1;
    for (int i = 1; i < count; ++i) unit &= inner.strides[i] == 0 || inner.strides[i] == 1;
  }
  if (!unit) {
    Loop& single = loops.items[loops.count++];
    single = kOnce;
    for (int i = 0; i < count; ++i) {
      single.strides[i] = operands[i].space == Space::immediate ? 0 : 1;
    }
  }
  // What three loops cannot hold is unrolled: the smallest fixed loops outside the innermost one;
  // of windows, rather rows of them than what they read side by side.
  Loop unrolled[kMaxDomainRank];
  int unrolled_count = 0;
  const auto number = [&](const Loop& loop) {
    return instruction.window < 0 ? int64_t{0} : std::abs(loop.strides[kNumbers]);
  };
  while (loops.count > 3) {
    int pick = -1;
    for (int i = 0; i + 1 < loops.count; ++i) {
      const Loop& loop = loops.items[i];
      if (loop.dim >= 0) continue;
      const auto sooner = [&](const Loop& other) {
        if (number(loop) != number(other)) return number(loop) > number(other);
        return loop.extent < other.extent;
      };
      if (pick < 0 || sooner(loops.items[pick])) pick = i;
    }
    if (pick < 0) {
      code_.overflow = true;
      return;
    }
    unrolled[unrolled_count++] = loops.items[pick];
    std::copy(loops.items + pick + 1, loops.items + loops.count, loops.items + pick);
    --loops.count;
  }
  Loop three[3] = {kOnce, kOnce, kOnce};
  std::copy(loops.items, loops.items + loops.count, three + 3 - loops.count);
  emit_unrolled(instruction, unrolled, unrolled_count, three, operands, count);
}

void Emitter::emit_unrolled(const Instruction& instruction, const Loop* unrolled,
                            int unrolled_count, const Loop* loops, const TileValue* operands,
                            int count) {
  int64_t total = 1;
  for (int i = 0; i < unrolled_count; ++i) total *= unrolled[i].extent;
  if (total > kMaxUnrolled) {
    code_.overflow = true;
    return;
  }
  for (int64_t n = 0; n < total; ++n) {
    int64_t offsets[kMaxOperands] = {};
    int64_t rest = n;
    for (int i = unrolled_count - 1; i >= 0; --i) {
      const int64_t coordinate = rest % unrolled[i].extent;
      rest /= unrolled[i].extent;
      for (int k = 0; k < count; ++k) offsets[k] += coordinate * unrolled[i].strides[k];
    }
    emit_at(instruction, loops, operands, count, offsets);
  }
}

void Emitter::emit_at(const Instruction& instruction, const Loop* loops, const TileValue* operands,
                      int count, const int64_t* offsets) {
  TileInstruction& out = code_.instructions.emplace_back();
  out.family = instruction.family;
  out.dtype = instruction.dtype;
  out.changed_mask = instruction.changed_mask;
  out.flags = instruction.flags;
  std::ranges::copy(instruction.extra, out.extra);
  out.window = instruction.window;
  out.operand_count = static_cast<uint8_t>(count);
  for (int i = 0; i < 3; ++i) out.extents[i] = extent_register(loops[i]);
  for (int k = 0; k < count; ++k) {
    out.operands[k] = operand(operands[k], offsets[k]);
    out.operands[k].outer = code_.stride(loops[0].strides[k]);
    out.operands[k].middle = code_.stride(loops[1].strides[k]);
    out.operands[k].inner = code_.stride(loops[2].strides[k]);
  }
  const bool flat = out.extents[0] == 0 && out.extents[1] == 0 && out.operands[0].inner == 1 &&
                    out.operands[1].inner == 1;
  if (out.family == Family::d_load_view && flat) out.family = Family::d_load;
  if (out.family == Family::d_store_view && flat) out.family = Family::d_store;
  if (out.family == Family::v_copy) {
    bool repeats = false;
    for (int i = 0; i < 3; ++i) repeats |= out.extents[i] != 0 && loops[i].strides[1] == 0;
    if (repeats) out.family = Family::v_broadcast;
  }
}

uint32_t Emitter::reduce_step(uint32_t axes, uint32_t reduce_axes, const TileValue& in) const {
  uint32_t longest = 0, step = 0;
  int64_t most = 0, elements = 1;
  int inner = -1;  // outermost axis of the step so far
  const auto complete = [&] {
    if (step != 0 && elements > most) longest = step, most = elements;
    step = 0, elements = 1, inner = -1;
  };
  for (int axis = code_.space.rank - 1; axis >= 0; --axis) {
    const TileAxis& a = code_.space.axes[axis];
    if (!(axes & bit(axis)) || a.tile == 1) continue;
    if (!(reduce_axes & bit(axis))) {
      complete();
      continue;
    }
    if (inner >= 0) {
      const TileAxis& b = code_.space.axes[inner];
      if (b.ragged() || in.strides[axis] != in.strides[inner] * b.tile) complete();
    }
    step |= bit(axis);
    elements *= a.tile;
    inner = axis;
  }
  complete();
  return longest;
}

void Emitter::reduce(const Instruction& instruction, uint32_t axes, uint32_t reduce_axes,
                     const TileValue& out, const TileValue& in) {
  uint32_t left = 0;  // reduced axes with more than one element in the tile
  for (int axis = 0; axis < code_.space.rank; ++axis) {
    if ((reduce_axes & bit(axis)) && code_.space.axes[axis].tile > 1) left |= bit(axis);
  }
  TileValue from = in;
  for (;;) {  // fewer are left each time
    const uint32_t step = reduce_step(axes | left, left, from);
    if (left != 0 && step == 0) throw std::logic_error("a reduction folds no axis");
    if ((left & ~step) == 0) {
      emit_reduce_step(instruction, axes, step, out, from);
      return;
    }
    left &= ~step;
    Instruction partial = instruction;
    partial.flags &= static_cast<uint8_t>(~kAccumulate);
    const TileValue next = dense_buffer(out.dtype, axes | left, instruction.changed_mask != 0);
    emit_reduce_step(partial, axes | left, step, next, from);
    from = next;
  }
}

void Emitter::emit_reduce_step(const Instruction& instruction, uint32_t axes, uint32_t step_axes,
                               const TileValue& out, const TileValue& in) {
  const TileValue operands[2] = {out, in};
  const uint32_t below = step_axes == 0 ? ~0u : (step_axes & (~step_axes + 1)) - 1;
  Loops outer = loops_over(axes & below, operands, 2);
  Loops size = loops_over(step_axes, operands, 2);
  Loops inner = loops_over(axes & ~below, operands, 2);
  collapse(outer, 2);
  collapse(size, 2);
  collapse(inner, 2);
  if (inner.count > 0) {
    const Loop& last = inner.items[inner.count - 1];
    if (last.strides[0] != 1 || last.strides[1] < 0 || last.strides[1] > 1) {
      std::copy(inner.items, inner.items + inner.count, outer.items + outer.count);
      outer.count += inner.count;
      inner.count = 0;
      collapse(outer, 2);
    }
  }
  Loop unrolled[2 * kMaxDomainRank];
  int unrolled_count = 0;
  for (Loops* loops : {&outer, &inner}) {
    while (loops->count > 1) {
      // The inner group keeps its contiguous loop, the outer group its longest or ragged one.
      const bool first_is_kept =
          loops == &outer &&
          (loops->items[0].dim >= 0 ||
           (loops->items[1].dim < 0 && loops->items[0].extent > loops->items[1].extent));
      const int pick = first_is_kept ? 1 : 0;
      if (loops->items[pick].dim >= 0) {
        code_.overflow = true;
        return;
      }
      unrolled[unrolled_count++] = loops->items[pick];
      std::copy(loops->items + pick + 1, loops->items + loops->count, loops->items + pick);
      --loops->count;
    }
  }
  const Loop three[3] = {outer.count > 0 ? outer.items[0] : kOnce,
                         size.count > 0 ? size.items[0] : kOnce,
                         inner.count > 0 ? inner.items[0] : Loop{1, -1, {1, 1}}};
  emit_unrolled(instruction, unrolled, unrolled_count, three, operands, 2);
}

}  // namespace dvm
