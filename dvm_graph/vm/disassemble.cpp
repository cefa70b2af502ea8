#include "vm/disassemble.h"

#include <cinttypes>
#include <cstring>

#include "vm/listing_text.h"
#include "vm/sync.h"

namespace dvm {
namespace {

void add_operand(Text& text, const uint64_t* words, DType dtype) {
  Operand operand;
  std::memcpy(&operand, words, sizeof operand);
  switch (operand.space()) {
    case Space::local: text.add("l:0x%x", operand.offset()); break;
    case Space::pointer: text.add("p%u", operand.offset()); break;
    case Space::two_places: text.add("ll:0x%x", operand.offset()); break;
    default: return add_immediate(text, dtype, words[1]);
  }
  text.add("(%d,%d,%d)", operand.outer_stride, operand.middle_stride, operand.inner_stride);
}

void add_instruction(Text& text, const uint64_t* words) {
  Head head;
  std::memcpy(&head, words, sizeof head);
  const auto family = static_cast<Family>(head.opcode / 16);
  const auto dtype = static_cast<DType>(head.opcode % 16);
  const FamilyInfo& info = info_of(family);
  const uint64_t* extra = extra_words(info.form, words);
  if (info.form == Form::sync) {
    add_sync(text, family, *extra);
    return add_predicates(text, head.changed_mask, head.flags);
  }
  text.add("%s_%s ", name_of(family), name_of(dtype));
  const uint8_t extents[] = {head.e0, head.e1, head.e2};
  add_extents(text, extents);
  const FormInfo& form = form_info(info.form);
  for (int k = 0; k < form.operand_count(); ++k) {
    if (k > 0) text.add("%s", k == 1 ? " <- " : ", ");
    add_operand(text, operand_words(words, k), operand_dtype(info.form, dtype, k));
  }
  if (form.extra == Extra::gather) {
    text.add(" stride %" PRId64, static_cast<int64_t>(*extra++));
  }
  if (has_window(info.form)) {
    for (int i = 0; i < 2 * kWindowWords; ++i) {
      const uint64_t word = extra[i / 2] >> 32 * (i % 2);
      text.add("%s%d", i == 0 ? " window (" : ", ", static_cast<int32_t>(word));
    }
    text.add(")");
  }
  if (has_ending(info.form)) {
    add_ending(text, dtype, ending_words(info.form, words));
  } else if (has_levels(form)) {
    const Levels levels = levels_of(info.form, words);
    text.add(" levels (%" PRId64 ", %" PRId64 ", %" PRId64 ")", levels.low, levels.high,
             levels.zero);
  } else if (form.extra == Extra::block) {
    text.add(" block %" PRId64 " of %" PRId64 " bits", static_cast<int64_t>(extra[0]),
             static_cast<int64_t>(extra[1]));
  } else if (form.extra == Extra::gather || form.extra == Extra::limit) {
    text.add(" limit %" PRId64, static_cast<int64_t>(*extra));
  }
  add_predicates(text, head.changed_mask, head.flags);
}

// The values that an instruction writes and reads: `y <- a, b`.
void add_values(Text& text, const uint64_t* words, const Program& program, Names names) {
  Head head;
  std::memcpy(&head, words, sizeof head);
  const Form form = info_of(static_cast<Family>(head.opcode / 16)).form;
  if (form == Form::sync) return;
  const FormInfo& info = form_info(form);
  bool written = false, read = false;
  for (int k = 0; k < info.operand_count(); ++k) {
    const Operand operand = operand_of(words, k);
    if (operand.space() != Space::pointer) continue;
    const int64_t buffer = program.pointers()[operand.offset()].buffer;
    if (!has_name(buffer, names)) continue;
    const bool writes = k < info.outputs;
    text.add("%s", read ? ", " : writes ? "  ; " : written ? " <- " : "  ; <- ");
    text.add_name(names[static_cast<size_t>(buffer)]);
    (writes ? written : read) = true;
  }
}

void add_header(Text& text, const Program& program, Names names) {
  const ProgramHeader& header = program.header();
  text.add("program %s\n", kind_name(header.kind));
  add_grid(text, program.grid());
  text.add("  tiles %" PRId64 " per_core %" PRId64 " group %" PRId64 " claim %" PRId64
           " chunks %d local 0x%" PRIx64,
           header.tiles, header.tiles_per_core, header.tile_group, header.preferred_claim,
           header.chunk_dim, static_cast<uint64_t>(header.local_bytes));
  if (header.ahead[0] > 0) text.add(" ahead %d", header.ahead_lines);
  for (const uint8_t pointer : header.ahead) {
    if (pointer > 0) text.add(" p%d", pointer - 1);
  }
  text.add("\n");
  if (header.regions[0] > 0) text.add("  regions %d x %d\n", header.regions[0], header.regions[1]);
  for (const Handed handed : kHanded) {
    const Ring& ring = header.ring(handed);
    if (!ring.exists()) continue;
    text.add("  ring %s p%d by %d lanes %d to %d slots %d of %" PRId64 "\n", name_of(handed),
             ring.pointer - 1, ring.pointers, ring.first_lane, ring.end_lane() - 1, ring.slots,
             ring.bytes);
  }
  if (header.line_blocks > 1) text.add("  lines of %d\n", header.line_blocks);
  if (header.beside_cube())
    text.add("  pieces %" PRId64 " line %" PRId64 "\n", header.pieces, header.line_tiles);
  add_registers(text, program.extents(), program.pointers(), program.grid().size(), names);
}

}  // namespace

std::string disassemble(const Program& program, std::span<const std::string> names) {
  Text text;
  add_header(text, program, names);
  text.add("body\n");
  const std::span<const uint64_t> body = program.body();
  for (size_t pc = 0; pc < body.size();) {
    Head head;
    std::memcpy(&head, &body[pc], sizeof head);
    text.add("  ");
    add_instruction(text, &body[pc]);
    add_values(text, &body[pc], program, names);
    text.add("\n");
    pc += head.words;
  }
  text.add("end\n");
  return text.take();
}

std::string disassemble_instruction(const uint64_t* words) {
  Text text;
  add_instruction(text, words);
  return text.take();
}

}  // namespace dvm
