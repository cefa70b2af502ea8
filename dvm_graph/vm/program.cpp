#include "vm/program.h"

#include <cstring>

namespace dvm {
namespace {

template <typename T>
uint64_t* append(uint64_t* to, std::span<const T> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size_bytes());
  return to + from.size_bytes() / sizeof(uint64_t);
}

}  // namespace

void Program::assign(const ProgramHeader& header, std::span<const GridDim> grid,
                     std::span<const ExtentRegister> extents,
                     std::span<const PointerRegister> pointers, std::span<const uint64_t> body) {
  ProgramHeader complete = header;
  complete.grid_rank = static_cast<uint8_t>(grid.size());
  complete.extent_registers = static_cast<uint8_t>(extents.size());
  complete.pointer_registers = static_cast<uint8_t>(pointers.size());
  complete.code_words = static_cast<int64_t>(body.size());
  words_.resize((sizeof complete + grid.size_bytes() + extents.size_bytes() +
                 pointers.size_bytes() + body.size_bytes()) /
                sizeof(uint64_t));
  uint64_t* to = append(words_.data(), std::span<const ProgramHeader>(&complete, 1));
  to = append(to, grid);
  to = append(to, extents);
  to = append(to, pointers);
  append(to, body);
}

Program::Tables Program::tables() {
  const auto open = []<typename T>(std::span<const T> table) {
    return std::span<T>(const_cast<T*>(table.data()), table.size());  // of words that are ours
  };
  return {*reinterpret_cast<ProgramHeader*>(words_.data()), open(grid()), open(pointers())};
}

}  // namespace dvm
