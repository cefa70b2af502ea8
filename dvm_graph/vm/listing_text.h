// What programs (disassemble.h) and tile code (tile_text.h) are printed with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "vm/program.h"

namespace dvm {

class Text {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...);

  void add_name(const std::string& name);  // control characters as ?
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

using Names = std::span<const std::string>;  // of values; or none
bool has_name(int64_t buffer, Names names);

const char* kind_name(KernelKind kind);
void add_immediate(Text& text, DType dtype, uint64_t bits);
void add_ending(Text& text, DType dtype, const uint64_t* words);
void add_extents(Text& text, std::span<const uint8_t, 3> extents);  // "[1,e2,e1] "
void add_predicates(Text& text, uint8_t changed_mask, uint8_t flags);
void add_sync(Text& text, Family family, uint64_t word);
void add_grid(Text& text, std::span<const GridDim> grid);
void add_registers(Text& text, std::span<const ExtentRegister> extents,
                   std::span<const PointerRegister> pointers, size_t grid_rank, Names names);

}  // namespace dvm
