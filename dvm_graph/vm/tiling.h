// Tiling of vector kernels (paper, Algorithm 1), with a ragged tail at every level.
//
// Walking from the outermost parallel axis inwards, outer axes get extent 1, one axis is cut, inner
// axes stay whole; of the cuts that fit, the one with the least
// ceil(tiles / cores) * (tile + overhead) wins. Reduced axes are held whole where they fit; else
// they are walked in chunks on one core, if nothing that follows a reduction needs the whole row.
#pragma once

#include <cstdint>
#include <optional>

#include "vm/live_bytes.h"
#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

// Whether the plan may walk over `chunk_axes` in chunks, accumulating its reductions.
bool can_chunk(const NormalPlan& plan, uint32_t chunk_axes);

// An axis whose tile is given: the pieces of a reduction split over cores.
struct ForcedTile {
  int axis = -1;
  int64_t tile = 0;
};

struct TilingRequest {
  LiveBytes live;
  double shrink = 1;  // fraction of the memory limits to use
  ForcedTile forced = {};
  bool by_rows = false;  // passes take turns on rows (row_blocks.h): tiles may outgrow L1
  bool widens = true;    // and so they may where they would read across rows else
};

// Fills code.space and code.grid for a tile that holds the reduced axes whole.
// False: not even the smallest such tile fits into local memory.
bool tile_whole(const NormalPlan& plan, const Target& target, const TilingRequest& request,
                TileCode& code);

// Whether tiles of `code` hold rows whose neighbours lie across them in memory, and are so narrow
// that a few elements come with a line of their own, there and back: kernels that pass over memory
// in its own order, once for each reduction, are faster.
bool goes_across(const NormalPlan& plan, const Target& target, const TileCode& code);

// Fills code.space, code.grid and code.chunk_dim for chunks over reduced axes; returns those axes,
// which are none where narrow tiles hold all. Nothing: the plan cannot be chunked.
std::optional<uint32_t> tile_chunks(const NormalPlan& plan, const Target& target,
                                    const TilingRequest& request, TileCode& code);

// Fills code.space, code.grid and code.chunk_dim for tiles of about as many elements, as far as the
// longest axes are cut, which have a grid dim each. Returns the reduced ones among them, which are
// chunks.
uint32_t tile_least(const NormalPlan& plan, int64_t elements, TileCode& code);

}  // namespace dvm
