// Places of loads: those that widen go to where they are read, one for each reader, so that they
// join it (strips.h) and nothing has to be stored. Other loads go to the front of the instructions
// that they would part, and so does what does not run for every tile or for one element of it.
// Stores of rows too short to join come behind what they would part.
#pragma once

#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

void move_loads(TileCode& code, const Target& target);

}  // namespace dvm
