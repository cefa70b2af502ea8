// The text form of programs: deterministic, without addresses of this process or opcode numbers.
// `assemble` (assemble.h) reads it back to identical words.
//
//   program vector
//     grid  d0: 32 tiles of 64 in 2000
//     tiles 32  per_core 16  group 1  claim 1  local 0x3000
//     e1 = 768 * d0
//     p0 = v3 + 0  [0, 6144000)  d0: 196608
//   body
//     v_add_f32 [1,1,e1] l:0x40(1) <- p0(1), p1(0)
//     ...
//   end
//
// An operand is its place and, in parentheses, its strides (outer, middle, inner).
#pragma once

#include <string>

#include "vm/program.h"

namespace dvm {

std::string disassemble(const Program& program);

// One instruction; `words` points at its head. Used by trap messages and the timing model's traces.
std::string disassemble_instruction(const uint64_t* words);

}  // namespace dvm
