// What instructions after a product read and store in global memory is announced before it, and
// before the last one what the next tile packs first: a device may fetch it while the product
// computes, which needs little of its memory's time.
#pragma once

#include "vm/tile_code.h"

namespace dvm {

// Inserts d_prefetch instructions, once local memory is laid out. `cache_bytes`: what a core's
// cache holds of local memory and of what is announced.
void prefetch_under_products(TileCode& code, int64_t cache_bytes);

}  // namespace dvm
