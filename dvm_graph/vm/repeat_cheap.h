// Repetition: results that cost no more than to be read back are computed anew for a reader further
// down. The copy of the instruction joins that one (strips.h), and nothing has to be stored.
#pragma once

#include "vm/tile_code.h"

namespace dvm {

// A copy has one reader, so it is not copied in its turn.
void repeat_cheap(TileCode& code);

}  // namespace dvm
