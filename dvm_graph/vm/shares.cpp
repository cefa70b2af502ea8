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
  for (const GroupRange& range : groups) groups_ += range.end - range.begin;
  if (!header.follows_cube()) {
    tiles_ = groups_ * header.tile_group;
    return;
  }
  ShareWalk all(*this);
  for (TileRun run; all.next(run);) tiles_ += run.end - run.begin;
}

bool ShareWalk::next(TileRun& run) {
  while (step(run)) {
    if (!header_.follows_cube() || run.group % header_.lanes == lane_) {
      run.number = tile_;
      tile_ += run.end - run.begin;
      return true;
    }
  }
  return false;
}

bool ShareWalk::step(TileRun& run) {
  if (range_ == ranges_.size()) return false;
  const GroupRange& range = ranges_[range_];
  const int64_t first = range.begin + in_range_;
  const int64_t end = header_.in_pair() ? first + 1 : range.end;
  run.begin = header_.first_tile(first);
  run.end = header_.first_tile(end);
  run.group = group_;
  group_ += end - first;
  in_range_ += end - first;
  if (end == range.end) {
    ++range_;
    in_range_ = 0;
  }
  return true;
}

}  // namespace dvm
