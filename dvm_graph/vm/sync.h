// Synchronisation between the queues of a core: each runs its instructions in order, but beside the
// others. Set/wait flags order two instructions of different queues that touch the same local
// memory, at least one of them writing.
//
// A flag is a counter per (from, to, event): `set` adds one when queue `from` has done all it was
// given before, `wait` holds queue `to` until it can take one. Sync instructions run whatever
// predicates the ordered instructions have, in the tiles that their `distance` says:
//   - 0, within a tile: set behind the last conflicting instruction of `from`, wait before the
//   first
//     of `to` that needs it.
//   - d > 0, across tiles: a set is for the wait in the d-th tile from its own. In the last d tiles
//     of a core's share nothing is set, in the first d of them nothing is waited for, so no signal
//     is ever left behind. 1, or 2 where what conflicts lies in two places.
// A flag *between cores* is of a ring of a pair (vm/program.h), whose number is its event: `from`
// is a queue of the one core and `to` one of the other, and its distance is in slots. Who waits
// does so in the first tile that is at a slot, who signals does so in the last. A cube core has a
// counter for each of its lanes: it signals all those that are at the slot, and waits for all of
// them.
//
// A pair of instructions gets a flag only where those before it order less (vm/order.h).
//
// The events of a direction are dealt out: one to each pair across tiles, the others in turn to the
// pairs within a tile. Where pairs across tiles are many, two become one that orders as much.
// Devices that execute in order (Target::queues is 1) need none.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/order.h"
#include "vm/shares.h"
#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

const char* name_of(Queue queue);
const char* name_of(Handed handed);

// The word of a sync instruction.
constexpr uint64_t sync_word(Queue from, Queue to, int event, int distance) {
  return static_cast<uint64_t>(from) | static_cast<uint64_t>(to) << 8 |
         static_cast<uint64_t>(event) << 16 | static_cast<uint64_t>(distance) << 24;
}
constexpr Queue sync_from(uint64_t word) { return static_cast<Queue>(word & 0xff); }
constexpr Queue sync_to(uint64_t word) { return static_cast<Queue>(word >> 8 & 0xff); }
constexpr int sync_event(uint64_t word) { return static_cast<int>(word >> 16 & 0xff); }
constexpr int sync_distance(uint64_t word) { return static_cast<int>(word >> 24 & 0xff); }
inline constexpr int kMostDistance = 2;

constexpr uint64_t between_cores(uint64_t word) { return word | uint64_t{1} << 32; }
constexpr bool is_between_cores(uint64_t word) { return (word >> 32 & 1) != 0; }
constexpr Handed ring_of(uint64_t word) { return static_cast<Handed>(sync_event(word)); }

// The queues that fill the slots of a ring and that empty them.
constexpr Queue filling(Handed handed) {
  return handed == Handed::sums ? Queue::fixp : Queue::mte3;
}
inline constexpr Queue kEmptying = Queue::mte2;
// Whether a half of a pair fills the slots of a ring.
constexpr bool fills(Handed handed, bool beside_cube) {
  return (handed == Handed::sums) != beside_cube;
}
// The flags for a slot that is full, and for one that is empty and filled again later.
constexpr uint64_t ring_word(Handed handed, bool full, int slots) {
  const int event = static_cast<int>(handed);
  return between_cores(full ? sync_word(filling(handed), kEmptying, event, 0)
                            : sync_word(kEmptying, filling(handed), event, slots));
}

// The queue that runs an instruction: a set flag is that of `from`, a wait that of `to`.
Queue queue_of(const uint64_t* words);

// Whether a sync instruction runs in a tile of a core's share of tiles.
constexpr bool sync_runs(Family family, uint64_t word, int64_t tile, int64_t tiles) {
  const int distance = sync_distance(word);
  return family == Family::s_set_flag ? tile + distance < tiles : tile >= distance;
}
// The same between cores, in a tile that is at a slot.
constexpr bool sync_runs(Family family, uint64_t word, const HandOver& at) {
  const bool end = family == Family::s_set_flag ? at.ends : at.begins;
  return end && sync_runs(family, word, at.number, at.count);
}

struct SyncScratch {
  struct Insertion {
    int32_t position;  // before this instruction
    Family family;
    uint64_t word;
  };
  // Instruction `last` of a tile comes before `first` of the one that is `distance` behind.
  struct Pair {
    int32_t last, first;
    int distance;
  };
  struct Ordered {
    Pair pair;
    int32_t next;        // of those with the same `first`; -1: the last
    int32_t next_along;  // of those of the same direction; -1: the last
  };
  // Of the pairs from one queue to another.
  struct Direction {
    int32_t first = -1, last = -1;
  };
  QueueSteps steps;
  QueueKnowledge known;
  std::vector<Ordered> ordered;
  Direction directions[kQueues * kQueues];
  std::vector<int32_t> waited;  // by instruction: the last of those that it is first of; -1: none
  std::vector<QueueClock> clocks;  // of each instruction's queue behind it, tile by tile
  std::vector<Insertion> insertions, sorted;
  std::vector<int32_t> ends;
  std::vector<Pair> within, across;
  std::vector<TileInstruction> merged;
};

// Gives loads memory that nothing else uses, so that the next tile's loads can run early.
void separate_loads(TileCode& code);

// Inserts s_set_flag and s_wait_flag into the allocated code. Overflow: it is too long.
void synchronise(TileCode& code, const Target& target, SyncScratch& scratch);

// Adds the flags between the cores of a pair: around the instructions that reach a ring through the
// header's pointer registers, with which a half fills its slots or empties them.
void synchronise_rings(TileCode& code, const ProgramHeader& header, SyncScratch& scratch);

}  // namespace dvm
