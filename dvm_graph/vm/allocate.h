// Local memory by liveness: a buffer lives from the first instruction that writes it to the last
// that touches it; kept buffers live for the whole program. An elementwise instruction may write
// over an input that dies with it.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

struct AllocatorScratch {
  struct Range {
    int64_t offset, bytes;
  };
  struct Life {
    int32_t first = -1, last = -1;
  };
  std::vector<Range> free;
  std::vector<Life> lives;
};

// Of one of a buffer's places.
int64_t place_bytes(const TileBuffer& buffer);

// Sets the offset of every used buffer and code.local_bytes, which ends beyond all local memories
// where one of them is too small.
void allocate_local(TileCode& code, const Target& target, AllocatorScratch& scratch);

}  // namespace dvm
