// What instructions after a product read and store in global memory is announced before it, and
// before the last one what the next tile packs first: a device may fetch it while the product
// computes, which needs little of its memory's time.
#pragma once

#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

// Inserts d_prefetch instructions, once local memory is laid out. A core's cache holds local memory
// and what is announced.
void prefetch_under_products(TileCode& code, const Target& target);

}  // namespace dvm
