#include "vm/encode.h"

#include <cstring>

#include "vm/allocate.h"

namespace dvm {
namespace {

uint64_t* encode_operand(const TileCode& code, const TileOperand& operand, uint64_t* to) {
  Operand words{};
  uint32_t place = static_cast<uint32_t>(operand.index);
  if (operand.space == Space::local) {
    place = static_cast<uint32_t>(code.buffers[operand.index].offset + operand.offset);
  }
  words.address = static_cast<uint32_t>(operand.space) << kSpaceShift | (place & kAddressMask);
  if (operand.space == Space::immediate) {
    words.address = static_cast<uint32_t>(Space::immediate) << kSpaceShift;
    std::memcpy(to, &words, sizeof words);
    to[1] = operand.immediate();
    return to + 2;
  }
  words.inner_stride = operand.inner;
  words.middle_stride = operand.middle;
  words.outer_stride = operand.outer;
  if (operand.space == Space::local && code.buffers[operand.index].two_places) {
    words.address =
        static_cast<uint32_t>(Space::two_places) << kSpaceShift | (place & kAddressMask);
    words.outer_stride = static_cast<int32_t>(place_bytes(code.buffers[operand.index]));
  }
  std::memcpy(to, &words, sizeof words);
  return to + 2;
}

int words_of(const TileInstruction& instruction) { return form_info(instruction.family).words(); }

// Returns where the next instruction goes.
uint64_t* encode_instruction(const TileCode& code, const TileInstruction& instruction,
                             uint64_t* to) {
  const int words = words_of(instruction);
  int extra = form_info(instruction.family).extra_words;
  const Head head{opcode_of(instruction.family, instruction.dtype),
                  static_cast<uint8_t>(words),
                  instruction.changed_mask,
                  instruction.flags,
                  instruction.extents[0],
                  instruction.extents[1],
                  instruction.extents[2]};
  std::memcpy(to, &head, sizeof head);
  ++to;
  for (int k = 0; k < instruction.operand_count; ++k) {
    to = encode_operand(code, instruction.operands[k], to);
  }
  if (instruction.window >= 0) {
    std::memcpy(to, &code.windows[instruction.window], sizeof(Window));
    to += kWindowWords;
    extra -= kWindowWords;
  }
  for (int i = 0; i < extra; ++i) *to++ = instruction.extra[i];
  return to;
}

}  // namespace

void encode(const TileCode& code, const Target& target, std::vector<uint64_t>& body,
            Program& program) {
  encode(code, target, {}, body, program);
}

void encode(const TileCode& code, const Target& target, const ProgramHeader& as,
            std::vector<uint64_t>& body, Program& program) {
  int words = 0;
  for (const TileInstruction& instruction : code.instructions) words += words_of(instruction);
  body.resize(static_cast<size_t>(words));
  uint64_t* to = body.data();
  for (const TileInstruction& instruction : code.instructions) {
    to = encode_instruction(code, instruction, to);
  }
  ProgramHeader header = as;
  header.kind = code.kind;
  header.chunk_dim = static_cast<uint8_t>(code.chunk_dim);
  header.tiles = 1;
  for (size_t d = 0; d < code.grid.size(); ++d) {
    header.tiles *= code.grid[d].count;
    if (static_cast<int>(d) >= code.chunk_dim) header.tile_group *= code.grid[d].count;
  }
  const int64_t group = header.tile_group;
  const int64_t groups = header.tiles / group;
  const int64_t cores = target.cores_of(code.kind);
  header.tiles_per_core = (groups + cores - 1) / cores * group;
  header.preferred_claim = (code.preferred_claim + group - 1) / group * group;
  header.local_bytes = code.local_bytes;
  std::memcpy(header.ahead, code.ahead, sizeof header.ahead);
  header.ahead_lines = code.ahead_lines;
  program.assign(header, code.grid, code.extents, code.pointers, body);
}

}  // namespace dvm
