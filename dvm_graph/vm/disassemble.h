// The text form of programs: deterministic, without addresses of this process or opcode numbers.
// `assemble` (assemble.h) reads it back to identical words.
//
//   program mix
//     grid d0: 32 tiles of 64 in 2000
//     tiles 32 per_core 16 group 1 claim 1 chunks 1 local 0x3000
//     e1 = 768
//     e2 = 1 * d0
//     p0 = v3 + 0 in [0, 6144000) d0: 196608
//     p1 = integer + 5 in [0, 0)
//   body
//     v_add_f32 [1,e2,e1] l:0x40(0,768,1) <- p0(0,768,1), #1.5 {first_tile}
//     d_gather_f32 [1,e2,e1] l:0x0(0,768,1) <- p1(0,0,1), l:0x40(0,1,0) stride 768 limit 30522
//     s_wait_flag mte2 -> vector event 0
//   end
//
// Extents in brackets are e0, e1, e2; `1` is register 0. An operand is its place and, in
// parentheses, its outer, middle and inner stride; `l:` is local memory, `#` an immediate. Braces
// hold predicates and flags: `changed d0 d2`, `first_tile`, `first_chunk`, `last_chunk`,
// `accumulate`, `accumulate_always`. A semicolon starts a comment: where the names of the values
// are given, it says which of them a pointer leads to and an instruction reads and writes.
#pragma once

#include <span>
#include <string>

#include "vm/program.h"

namespace dvm {

// `names` of the values that the program's pointers number; or none.
std::string disassemble(const Program& program, std::span<const std::string> names = {});

// One instruction; `words` points at its head. Used by trap messages and the timing model's traces.
std::string disassemble_instruction(const uint64_t* words);

}  // namespace dvm
