// Places of loads: those that widen go to where they are read, one for each reader, so that they
// join it (strips.h) and nothing has to be stored. Other loads go to the front of the instructions
// that they would part, and whatever does not run for every tile to the front of all.
#pragma once

#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

void move_loads(TileCode& code, const Target& target);

}  // namespace dvm
