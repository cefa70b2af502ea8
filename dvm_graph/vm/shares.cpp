#include "vm/shares.h"

#include <algorithm>

#include "kernels/numbers.h"

namespace dvm {

void share_of(const Program& program, int64_t core, int64_t cores, std::vector<GroupRange>& out) {
  out.clear();
  const ProgramHeader& header = program.header();
  const int64_t groups = header.groups();
  const int64_t across = header.regions[0], along = header.regions[1];
  if (across * along == cores) {
    const int64_t columns = program.grid()[header.chunk_dim - 1u].count;
    const int64_t rows = groups / columns;
    const int64_t high = ceil_div(rows, across), wide = ceil_div(columns, along);
    const int64_t top = core / along * high, left = core % along * wide;
    const int64_t bottom = std::min(rows, top + high), right = std::min(columns, left + wide);
    for (int64_t row = top; row < bottom && left < right; ++row) {
      const GroupRange line{row * columns + left, row * columns + right};
      if (!out.empty() && out.back().end == line.begin) {
        out.back().end = line.end;
      } else {
        out.push_back(line);
      }
    }
    return;
  }
  const int64_t each = ceil_div(groups, cores);
  const GroupRange range{core * each, std::min(groups, (core + 1) * each)};
  if (range.begin < range.end) out.push_back(range);
}

ShareWalk::ShareWalk(const ProgramHeader& header, std::span<const GroupRange> groups, int64_t lane)
    : header_(header), ranges_(groups), lane_(lane) {
  const int64_t blocks = header.line_blocks;
  for (const GroupRange& range : groups) {
    groups_ += range.end - range.begin;
    lines_ += ceil_div(range.end, blocks) - range.begin / blocks;
  }
  if (!header.beside_cube()) {
    tiles_ = groups_ * header.tile_group;
    return;
  }
  ShareWalk all(*this);
  for (TileRun run; all.next(run);) tiles_ += run.end - run.begin;
}

bool ShareWalk::next(TileRun& run) {
  while (step(run)) {
    if (!is_mine(run)) continue;
    run.number = tile_;
    tile_ += run.end - run.begin;
    return true;
  }
  return false;
}

// Whether the lane has something of it, and what.
bool ShareWalk::is_mine(TileRun& run) const {
  if (!header_.beside_cube()) return true;
  const Ring& ring = header_.ring(header_.feeds() ? Handed::rows : Handed::sums);
  const int64_t lane = lane_ - ring.first_lane;
  if (!header_.feeds()) return run.group % ring.lanes == lane;
  const int64_t tiles = run.end - run.begin;
  run.end = run.first + tiles * (lane + 1) / ring.lanes;
  run.begin = run.first + tiles * lane / ring.lanes;
  return run.begin < run.end;
}

bool ShareWalk::step(TileRun& run) {
  if (range_ == ranges_.size()) return false;
  const GroupRange& range = ranges_[range_];
  const int64_t first = range.begin + in_range_, blocks = header_.line_blocks;
  const int64_t line_end = std::min(range.end, (first / blocks + 1) * blocks);
  const int64_t end = header_.feeds() ? line_end : header_.in_pair() ? first + 1 : range.end;
  run.begin = run.first = header_.first_tile(first);
  run.end = header_.first_tile(header_.feeds() ? (first / blocks + 1) * blocks : end);
  run.group = group_;
  run.line = line_;
  run.begins_line = in_range_ == 0 || first % blocks == 0;
  run.ends_line = end == line_end;
  line_ += run.ends_line;
  group_ += end - first;
  in_range_ += end - first;
  if (end == range.end) {
    ++range_;
    in_range_ = 0;
  }
  return true;
}

HandOver ShareWalk::hand_over(Handed handed, const TileRun& run, int64_t tile) const {
  const Ring& ring = header_.ring(handed);
  HandOver at;
  at.begins = tile == run.begin;
  at.ends = tile + 1 == run.end;
  at.first_lane = ring.first_lane;
  at.end_lane = ring.end_lane();
  if (handed == Handed::rows) {
    at.number = run.line;
    at.count = lines_;
    at.begins &= run.begins_line;
    at.ends &= run.ends_line;
  } else {
    at.number = run.group;
    at.count = groups_;
    at.first_lane += static_cast<int>(run.group % ring.lanes);
    at.end_lane = at.first_lane + 1;
  }
  if (header_.beside_cube()) {
    at.first_lane = static_cast<int>(lane_);
    at.end_lane = at.first_lane + 1;
  }
  return at;
}

}  // namespace dvm
