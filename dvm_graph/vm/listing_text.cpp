#include "vm/listing_text.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "vm/sync.h"

namespace dvm {
namespace {

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

void add_extent(Text& text, uint8_t e, char before) {
  if (e == 0) {
    text.add("%c1", before);
  } else {
    text.add("%ce%d", before, e);
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

}  // namespace

void Text::add(const char* format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text_ += line;
}

void Text::add_name(const std::string& name) {
  for (const char c : name) text_ += static_cast<unsigned char>(c) < ' ' ? '?' : c;
}

bool has_name(int64_t buffer, Names names) {
  return buffer >= 0 && buffer < static_cast<int64_t>(names.size());
}

const char* kind_name(KernelKind kind) {
  constexpr const char* names[] = {"vector", "cube", "mix"};
  return names[static_cast<int>(kind)];
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

void add_ending(Text& text, DType dtype, const uint64_t* words) {
  const auto add_two = [&](const char* name, const uint64_t* two) {
    text.add(" %s (", name);
    add_immediate(text, dtype, two[0]);
    text.add(", ");
    add_immediate(text, dtype, two[1]);
    text.add(")");
  };
  add_two("clamp", words);
  if (words[2] != 0 || words[3] != 0) add_two("gate", words + 2);
}

void add_extents(Text& text, std::span<const uint8_t, 3> extents) {
  for (int loop = 0; loop < 3; ++loop) add_extent(text, extents[loop], loop == 0 ? '[' : ',');
  text.add("] ");
}

void add_predicates(Text& text, uint8_t changed_mask, uint8_t flags) {
  if (changed_mask == 0 && flags == 0) return;
  const char* separator = " {";
  const auto put = [&](const char* what) {
    text.add("%s%s", separator, what);
    separator = ", ";
  };
  if ((changed_mask & ~kFirstTileOnly) != 0) {
    put("changed");
    for (int d = 0; d < kMaxGridRank; ++d) {
      if (changed_mask >> d & 1) text.add(" d%d", d);
    }
  }
  if (changed_mask & kFirstTileOnly) put("first_tile");
  if (flags & kAccumulate) put("accumulate");
  if (flags & kFirstChunk) put("first_chunk");
  if (flags & kLastChunk) put("last_chunk");
  if (flags & kAccumulateAlways) put("accumulate_always");
  if (flags & kStream) put("stream");
  if (flags & kJoined) put("joined");
  if (flags & kTransient) put("transient");
  if (flags & kRows) put("rows");
  text.add("}");
}

void add_sync(Text& text, Family family, uint64_t word) {
  text.add("%s %s -> %s event %d", name_of(family), name_of(sync_from(word)),
           name_of(sync_to(word)), sync_event(word));
  if (sync_distance(word) > 0) text.add(" across %d", sync_distance(word));
  if (is_between_cores(word)) text.add(" between_cores");
}

void add_grid(Text& text, std::span<const GridDim> grid) {
  for (size_t d = 0; d < grid.size(); ++d) {
    const GridDim& dim = grid[d];
    text.add("  grid d%zu: %" PRId64 " tiles of %" PRId64 " in %" PRId64 "\n", d, dim.count,
             dim.tile, dim.whole);
  }
}

void add_registers(Text& text, std::span<const ExtentRegister> extents,
                   std::span<const PointerRegister> pointers, size_t grid_rank, Names names) {
  for (size_t r = 0; r < extents.size(); ++r) {
    text.add("  e%zu = %d", r + 1, extents[r].multiplier);
    if (extents[r].part > 0) {
      text.add(" part %d of d%d", extents[r].part, extents[r].dim);
    } else if (extents[r].dim >= 0) {
      text.add(" * d%d", extents[r].dim);
    }
    text.add("\n");
  }
  for (size_t p = 0; p < pointers.size(); ++p) {
    add_pointer(text, p, pointers[p], grid_rank, names);
  }
}

}  // namespace dvm
