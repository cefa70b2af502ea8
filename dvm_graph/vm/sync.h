// Synchronisation between the pipes of a core: DMA-in, vector, cube and DMA-out each run their
// instructions in order, but beside one another. Set/wait flags order two instructions on different
// pipes that touch the same local memory, at least one of them writing.
//
// A flag is a counter per (from, to, event): `set` adds one when pipe `from` has done all it was
// given before, `wait` holds pipe `to` until it can take one. All sync instructions run in every
// tile, whatever predicates the ordered instructions have.
//   - Forward, within a tile: set after the last conflicting instruction of `from`, wait before the
//     first of `to` that needs it. Events 0 .. event_flags-2 in turn.
//   - Backward, to the next tile: one pair per direction, on the last event. Its wait comes before
//     its set, so a set that runs in the first tile only opens it; one signal is left at the end.
// Devices that execute in order (Target::queues is 1) need none.
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

// The word of a sync instruction.
constexpr uint64_t sync_word(Pipe from, Pipe to, int event) {
  return static_cast<uint64_t>(from) | static_cast<uint64_t>(to) << 8 |
         static_cast<uint64_t>(event) << 16;
}
constexpr Pipe sync_from(uint64_t word) { return static_cast<Pipe>(word & 0xff); }
constexpr Pipe sync_to(uint64_t word) { return static_cast<Pipe>(word >> 8 & 0xff); }
constexpr int sync_event(uint64_t word) { return static_cast<int>(word >> 16 & 0xff); }

struct SyncScratch {
  struct Insertion {
    int32_t position;  // before this instruction
    int32_t order;     // among insertions at one position
    Family family;
    uint64_t word;
    bool first_tile_only;
  };
  std::vector<Insertion> insertions;
  std::vector<TileInstruction> merged;
};

// Gives loads memory that nothing else uses, so that the next tile's loads can run early.
void separate_loads(TileCode& code);

// Inserts s_set_flag and s_wait_flag into the allocated code.
void synchronise(TileCode& code, const Target& target, SyncScratch& scratch);

}  // namespace dvm
