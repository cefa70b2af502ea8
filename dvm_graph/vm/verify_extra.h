// What instructions have behind their operands: blocks of levels, endings, levels, windows.
#pragma once

#include <cstdint>
#include <cstring>

#include "vm/isa.h"
#include "vm/program.h"
#include "vm/target.h"
#include "vm/verify_fault.h"
#include "vm/verify_reach.h"

namespace dvm {

// Whole words of levels, beside scales and maybe zeros.
bool check_block(Form form, const uint64_t* words, const Target& target, Fault& fail);

// The addend, where it is a number, and what results end as.
bool check_ending(Form form, DType dtype, const uint64_t* words, Fault& fail);

bool check_levels(const Levels& levels, DType dtype, Fault& fail);

inline Window window_of(Form form, const uint64_t* words) {
  Window window;
  std::memcpy(&window, extra_words(form, words), sizeof window);
  return window;
}

// Sizes in range, whose products do not overflow.
bool check_window_sizes(const Window& window, Fault& fail);

// Every number is that of a window, and every element one of a patch.
bool check_window(const Program& program, const Reaches& reaches, const Head& head,
                  const uint64_t* words, Fault& fail);

}  // namespace dvm
