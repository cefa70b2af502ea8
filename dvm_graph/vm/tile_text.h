// The text form of tile code: what the steps of the run-time compiler (compile.cpp) leave to one
// another. Deterministic; it is printed, not read.
//
//   tile code vector
//     axis a0: 2000 in tiles of 64 along d0
//     grid d0: 32 tiles of 64 in 2000
//     e1 = 1 * d0
//     p0 = v3 + 0 in [0, 8000) d0: 256
//     b0: 256 bytes at 0x40
//     b1: 64 bytes kept
//     v_add_f32 [1,1,e1] b0(0,0,1) <- p0(0,0,1), #1.5 {joined}
//   end
//
// Places are `b`, a buffer of local memory (`b0+64`: from its byte 64), or as in disassemble.h. A
// buffer has a place in local memory once they are laid out.
#pragma once

#include <span>
#include <string>

#include "vm/tile_code.h"

namespace dvm {

// `names` of the values that pointers number; or none.
std::string print_tile_code(const TileCode& code, std::span<const std::string> names = {});

}  // namespace dvm
