// Synchronisation between the pipes of a core: DMA-in, vector, cube and DMA-out each run their
// instructions in order, but beside one another. Set/wait flags order them where one reads what
// another writes, forward within a tile and backward to the next tile. Devices that execute in
// order (event_flags == 0) need none.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

enum class Pipe : uint8_t { dma_in, vector, cube, dma_out, scalar };
inline constexpr int kPipes = 4;  // those with queues of their own

Pipe pipe_of(Family family);
const char* name_of(Pipe pipe);

struct SyncScratch {
  std::vector<TileInstruction> instructions;
  std::vector<uint64_t> words;
};

// Inserts s_set_flag, s_wait_flag and s_barrier into the allocated code.
void synchronise(TileCode& code, const Target& target, SyncScratch& scratch);

}  // namespace dvm
