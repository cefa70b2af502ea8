// Which core runs which tiles of a program: static shares, as the paper's Algorithm 2 deals them
// out, in groups of tiles that stay together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vm/program.h"

namespace dvm {

// Consecutive groups.
struct GroupRange {
  int64_t begin = 0, end = 0;

  bool operator==(const GroupRange&) const = default;
};

// The bits of changed_mask at the first tile of a share (vm/program.h).
inline constexpr uint8_t kEverythingChanged = 0xff;

// The share of a core of so many that have the program alone: ceil(groups / cores) in a row, or a
// region. Ranges are not empty, and in the order in which the core runs them.
void share_of(const Program& program, int64_t core, int64_t cores, std::vector<GroupRange>& out);

// Consecutive tiles of a share: a range of it, or in pairs one group of the cube unit's, or what a
// lane does at one slot.
struct TileRun {
  int64_t begin = 0, end = 0;
  int64_t number = 0;                           // of its first tile in the share
  int64_t group = 0;                            // of its first group in the share
  int64_t line = 0;                             // of a line, as far as it is in the share
  bool begins_line = false, ends_line = false;  // at its first group and its last
  int64_t first = 0;                            // tile of the group, which another lane may run
};

// The slot of a ring that a tile is at.
struct HandOver {
  int64_t number = 0, count = 0;      // among those of the share
  bool begins = false, ends = false;  // with this tile
  int first_lane = 0, end_lane = 0;   // who are at it
};

// Goes through the tiles that a core has of a share. Of a pair's vector program each lane has its
// own.
class ShareWalk {
 public:
  ShareWalk(const ProgramHeader& header, std::span<const GroupRange> groups, int64_t lane = 0);

  bool next(TileRun& run);
  HandOver hand_over(Handed handed, const TileRun& run, int64_t tile) const;
  int64_t tiles() const { return tiles_; }    // all of the core's
  int64_t groups() const { return groups_; }  // of the share: of all lanes

 private:
  bool step(TileRun& run);
  bool is_mine(TileRun& run) const;

  const ProgramHeader& header_;
  std::span<const GroupRange> ranges_;
  const int64_t lane_;
  int64_t tiles_ = 0, groups_ = 0, lines_ = 0;
  size_t range_ = 0;
  int64_t in_range_ = 0, group_ = 0, line_ = 0, tile_ = 0;
};

}  // namespace dvm
