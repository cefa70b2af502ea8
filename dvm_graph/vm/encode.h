// Encoding: allocated tile code becomes the words of a program.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

// `body` is scratch memory.
void encode(const TileCode& code, const Target& target, std::vector<uint64_t>& body,
            Program& program);

// `as` says of pairs and regions what tile code does not.
void encode(const TileCode& code, const Target& target, const ProgramHeader& as,
            std::vector<uint64_t>& body, Program& program);

}  // namespace dvm
