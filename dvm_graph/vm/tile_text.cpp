#include "vm/tile_text.h"

#include <cinttypes>

#include "vm/listing_text.h"
#include "vm/sync.h"

namespace dvm {
namespace {

void add_axes(Text& text, const TileSpace& space) {
  for (int a = 0; a < space.rank; ++a) {
    const TileAxis& axis = space.axes[a];
    text.add("  axis a%d: %" PRId64, a, axis.whole);
    if (axis.dim >= 0) text.add(" in tiles of %" PRId64 " along d%d", axis.tile, axis.dim);
    text.add("\n");
  }
}

void add_buffers(Text& text, const TileCode& code) {
  for (size_t b = 0; b < code.buffers.size(); ++b) {
    const TileBuffer& buffer = code.buffers[b];
    text.add("  b%zu: %" PRId64 " bytes%s", b, buffer.bytes, buffer.kept ? " kept" : "");
    if (buffer.memory != Memory::main) text.add(" in memory %d", static_cast<int>(buffer.memory));
    if (buffer.two_places) text.add(" at two places");
    if (buffer.offset >= 0) text.add(" at 0x%" PRIx64, static_cast<uint64_t>(buffer.offset));
    text.add("\n");
  }
}

void add_operand(Text& text, const TileOperand& operand, DType dtype) {
  switch (operand.space) {
    case Space::local: text.add("b%d", operand.index); break;
    case Space::pointer: text.add("p%d", operand.index); break;
    default: return add_immediate(text, dtype, operand.immediate());
  }
  if (operand.offset != 0) text.add("+%d", operand.offset);
  text.add("(%d,%d,%d)", operand.outer, operand.middle, operand.inner);
}

void add_window(Text& text, const Window& window) {
  text.add(" window (");
#define DVM_WINDOW_SIZE(name) text.add("%d, ", window.name);
#include "kernels/plan.def"
  text.add("%d)", window.first);
}

void add_extra(Text& text, const TileCode& code, const TileInstruction& instruction) {
  const Form form = info_of(instruction.family).form;
  const Extra extra = form_info(form).extra;
  if (instruction.window >= 0)
    add_window(text, code.windows[static_cast<size_t>(instruction.window)]);
  if (extra == Extra::gather) {
    text.add(" stride %" PRId64 " limit %" PRId64, static_cast<int64_t>(instruction.extra[0]),
             static_cast<int64_t>(instruction.extra[1]));
  } else if (extra == Extra::limit) {
    text.add(" limit %" PRId64, static_cast<int64_t>(instruction.extra[0]));
  } else if (extra == Extra::block) {
    text.add(" block %" PRId64 " of %" PRId64 " bits", static_cast<int64_t>(instruction.extra[0]),
             static_cast<int64_t>(instruction.extra[1]));
  } else if (has_ending(form)) {
    add_ending(text, instruction.dtype, instruction.extra);
  } else if (has_levels(form)) {
    text.add(" levels (%" PRId64 ", %" PRId64 ", %" PRId64 ")",
             static_cast<int64_t>(instruction.extra[0]), static_cast<int64_t>(instruction.extra[1]),
             static_cast<int64_t>(instruction.extra[2]));
  }
}

void add_instruction(Text& text, const TileCode& code, const TileInstruction& instruction) {
  const FamilyInfo& info = info_of(instruction.family);
  text.add("  ");
  if (info.form == Form::sync) {
    add_sync(text, instruction.family, instruction.extra[0]);
  } else {
    text.add("%s_%s ", name_of(instruction.family), name_of(instruction.dtype));
    add_extents(text, instruction.extents);
    for (int k = 0; k < instruction.operand_count; ++k) {
      if (k > 0) text.add("%s", k == 1 ? " <- " : ", ");
      add_operand(text, instruction.operands[k], operand_dtype(info.form, instruction.dtype, k));
    }
    add_extra(text, code, instruction);
  }
  add_predicates(text, instruction.changed_mask, instruction.flags);
  text.add("\n");
}

}  // namespace

std::string print_tile_code(const TileCode& code, std::span<const std::string> names) {
  Text text;
  text.add("tile code %s\n", kind_name(code.kind));
  add_axes(text, code.space);
  add_grid(text, code.grid);
  add_registers(text, code.extents, code.pointers, code.grid.size(), names);
  add_buffers(text, code);
  for (const uint8_t pointer : code.ahead) {
    if (pointer > 0) text.add("  ahead p%d, %d lines\n", pointer - 1, code.ahead_lines);
  }
  for (const TileInstruction& instruction : code.instructions) {
    add_instruction(text, code, instruction);
  }
  text.add("end\n");
  return text.take();
}

}  // namespace dvm
