#include "vm/disassemble.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "vm/sync.h"

namespace dvm {
namespace {

class Text {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    text_ += line;
  }
  void add_name(const std::string& name) {
    for (const char c : name) text_ += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

const char* name_of(KernelKind kind) {
  constexpr const char* names[] = {"vector", "cube", "mix"};
  return names[static_cast<int>(kind)];
}

// The shortest of a decimal number and raw bits that reads back to the same bits.
template <typename Float>
void add_float(Text& text, uint64_t bits, int digits) {
  Float value;
  std::memcpy(&value, &bits, sizeof value);
  char decimal[64];
  std::snprintf(decimal, sizeof decimal, "%.*g", digits, static_cast<double>(value));
  const auto back = static_cast<Float>(std::strtod(decimal, nullptr));
  if (std::memcmp(&back, &value, sizeof value) == 0 && bits >> (8 * sizeof value - 1) >> 1 == 0) {
    text.add("#%s", decimal);
  } else {
    text.add("#bits 0x%" PRIx64, bits);
  }
}

void add_immediate(Text& text, DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::f32: return add_float<float>(text, bits, 9);
    case DType::f64: return add_float<double>(text, bits, 17);
    case DType::i64: return text.add("#%" PRId64, static_cast<int64_t>(bits));
    case DType::i32:
      if (bits >> 32 == 0) return text.add("#%" PRId32, static_cast<int32_t>(bits));
      [[fallthrough]];
    case DType::b8:
      if (bits <= 1) return text.add("#%d", static_cast<int>(bits));
      [[fallthrough]];
    default: text.add("#bits 0x%" PRIx64, bits);
  }
}

void add_operand(Text& text, const uint64_t* words, DType dtype) {
  Operand operand;
  std::memcpy(&operand, words, sizeof operand);
  switch (operand.space()) {
    case Space::local: text.add("l:0x%x", operand.offset()); break;
    case Space::pointer: text.add("p%u", operand.offset()); break;
    default: return add_immediate(text, dtype, words[1]);
  }
  text.add("(%d,%d,%d)", operand.outer_stride, operand.middle_stride, operand.inner_stride);
}

void add_extent(Text& text, uint8_t e, char before) {
  if (e == 0) {
    text.add("%c1", before);
  } else {
    text.add("%ce%d", before, e);
  }
}

void add_predicates(Text& text, const Head& head) {
  if (head.changed_mask == 0 && head.flags == 0) return;
  const char* separator = " {";
  const auto put = [&](const char* what) {
    text.add("%s%s", separator, what);
    separator = ", ";
  };
  if ((head.changed_mask & ~kFirstTileOnly) != 0) {
    put("changed");
    for (int d = 0; d < kMaxGridRank; ++d) {
      if (head.changed_mask >> d & 1) text.add(" d%d", d);
    }
  }
  if (head.changed_mask & kFirstTileOnly) put("first_tile");
  if (head.flags & kAccumulate) put("accumulate");
  if (head.flags & kFirstChunk) put("first_chunk");
  if (head.flags & kLastChunk) put("last_chunk");
  if (head.flags & kAccumulateAlways) put("accumulate_always");
  if (head.flags & kStream) put("stream");
  if (head.flags & kJoined) put("joined");
  if (head.flags & kTransient) put("transient");
  if (head.flags & kRows) put("rows");
  text.add("}");
}

void add_instruction(Text& text, const uint64_t* words) {
  Head head;
  std::memcpy(&head, words, sizeof head);
  const auto family = static_cast<Family>(head.opcode / 16);
  const auto dtype = static_cast<DType>(head.opcode % 16);
  const FamilyInfo& info = info_of(family);
  if (info.form == Form::sync) {
    text.add("%s %s -> %s event %d", name_of(family), name_of(sync_from(words[1])),
             name_of(sync_to(words[1])), sync_event(words[1]));
    return add_predicates(text, head);
  }
  text.add("%s_%s ", name_of(family), name_of(dtype));
  add_extent(text, head.e0, '[');
  add_extent(text, head.e1, ',');
  add_extent(text, head.e2, ',');
  text.add("] ");
  const FormInfo form = form_info(info.form);
  for (int k = 0; k < form.outputs + form.inputs; ++k) {
    if (k > 0) text.add("%s", k == 1 ? " <- " : ", ");
    add_operand(text, words + 1 + 2 * k, operand_dtype(info.form, dtype, k));
  }
  const uint64_t* extra = words + 1 + 2 * (form.outputs + form.inputs);
  if (info.form == Form::gather) {
    text.add(" stride %" PRId64, static_cast<int64_t>(*extra++));
  }
  if (has_window(info.form)) {
    for (int i = 0; i < 2 * kWindowWords; ++i) {
      const uint64_t word = extra[i / 2] >> 32 * (i % 2);
      text.add("%s%d", i == 0 ? " window (" : ", ", static_cast<int32_t>(word));
    }
    text.add(")");
  } else if (info.form == Form::matmul_clamp) {
    text.add(" clamp (");
    add_immediate(text, dtype, extra[0]);
    text.add(", ");
    add_immediate(text, dtype, extra[1]);
    text.add(")");
  } else if (form.extra_words > 0)
    text.add(" limit %" PRId64, static_cast<int64_t>(*extra));
  add_predicates(text, head);
}

using Names = std::span<const std::string>;

bool has_name(int64_t buffer, Names names) {
  return buffer >= 0 && buffer < static_cast<int64_t>(names.size());
}

// The values that an instruction writes and reads: `y <- a, b`.
void add_values(Text& text, const uint64_t* words, const Program& program, Names names) {
  Head head;
  std::memcpy(&head, words, sizeof head);
  const Form form = info_of(static_cast<Family>(head.opcode / 16)).form;
  if (form == Form::sync) return;
  const FormInfo info = form_info(form);
  bool written = false, read = false;
  for (int k = 0; k < info.outputs + info.inputs; ++k) {
    Operand operand;
    std::memcpy(&operand, words + 1 + 2 * k, sizeof operand);
    if (operand.space() != Space::pointer) continue;
    const int64_t buffer = program.pointers()[operand.offset()].buffer;
    if (!has_name(buffer, names)) continue;
    const bool writes = k < info.outputs;
    text.add("%s", read ? ", " : writes ? "  ; " : written ? " <- " : "  ; <- ");
    text.add_name(names[static_cast<size_t>(buffer)]);
    (writes ? written : read) = true;
  }
}

void add_pointer(Text& text, size_t index, const PointerRegister& pointer, size_t grid_rank,
                 Names names) {
  text.add("  p%zu = ", index);
  if (pointer.buffer == kPlainInteger) {
    text.add("integer");
  } else if (pointer.buffer == kWorkspace) {
    text.add("workspace");
  } else {
    text.add("v%" PRId64, pointer.buffer);
  }
  text.add(" + %" PRId64 " in [%" PRId64 ", %" PRId64 ")", pointer.base, pointer.low, pointer.high);
  for (size_t d = 0; d < grid_rank; ++d) {
    if (pointer.steps[d] != 0) text.add(" d%zu: %" PRId64, d, pointer.steps[d]);
  }
  if (has_name(pointer.buffer, names)) {
    text.add("  ; ");
    text.add_name(names[static_cast<size_t>(pointer.buffer)]);
  }
  text.add("\n");
}

void add_header(Text& text, const Program& program, Names names) {
  const ProgramHeader& header = program.header();
  text.add("program %s\n", name_of(header.kind));
  for (size_t d = 0; d < program.grid().size(); ++d) {
    const GridDim& dim = program.grid()[d];
    text.add("  grid d%zu: %" PRId64 " tiles of %" PRId64 " in %" PRId64 "\n", d, dim.count,
             dim.tile, dim.whole);
  }
  text.add("  tiles %" PRId64 " per_core %" PRId64 " group %" PRId64 " claim %" PRId64
           " chunks %d local 0x%" PRIx64,
           header.tiles, header.tiles_per_core, header.tile_group, header.preferred_claim,
           header.chunk_dim, static_cast<uint64_t>(header.local_bytes));
  if (header.ahead[0] > 0) text.add(" ahead %d", header.ahead_lines);
  for (const uint8_t pointer : header.ahead) {
    if (pointer > 0) text.add(" p%d", pointer - 1);
  }
  text.add("\n");
  for (size_t r = 0; r < program.extents().size(); ++r) {
    const ExtentRegister& e = program.extents()[r];
    text.add("  e%zu = %d", r + 1, e.multiplier);
    if (e.dim >= 0) text.add(" * d%d", e.dim);
    text.add("\n");
  }
  for (size_t p = 0; p < program.pointers().size(); ++p) {
    add_pointer(text, p, program.pointers()[p], program.grid().size(), names);
  }
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
