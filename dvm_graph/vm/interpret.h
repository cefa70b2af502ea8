// The virtual machine (paper, Algorithm 2): runs a range of a program's tiles on one core.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vm/core.h"
#include "vm/program.h"
#include "vm/shares.h"

namespace dvm {

// Runs tiles [begin, end) of `program` in order. Every tile runs on one core only; begin and end
// are multiples of tile_group (or end == tiles). The first tile of a call counts as "everything
// changed": operands that are loaded once are loaded anew by each call, hence preferred_claim.
//
// `buffers` points behind its kReservedBuffers leading entries (program.h). core.local must have
// header().local_bytes. Stops at the first instruction that traps: core.trap tells kind, tile and
// pc (the word index in the body). The caller clears core.trap.
//
// `next` is the tile that the core will probably run after this call, negative: nobody knows. It is
// fetched ahead as the others are.
//
// Where core.times is set, every instruction is timed. A second instance of the loop does that: who
// does not profile pays nothing.
void run_tiles(const Program& program, const InstructionTable& table, Core& core,
               std::byte* const* buffers, int64_t begin, int64_t end, int64_t next = -1);

// Runs some consecutive tiles of a share of so many (vm/shares.h). Of a pair: in the rings of cube
// core number `ring_core`.
void run_of_share(const Program& program, const InstructionTable& table, Core& core,
                  std::byte* const* buffers, const TileRun& run, int64_t share_tiles,
                  int64_t ring_core = 0);

}  // namespace dvm
