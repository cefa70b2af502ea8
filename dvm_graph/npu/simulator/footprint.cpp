#include "npu/simulator/footprint.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <unordered_map>

namespace dvm {
namespace {

constexpr int64_t kMostFollowed = 1 << 20;  // tiles whose reads are followed one by one

constexpr uint8_t kEveryTile = 0, kEverythingChanged = 0xff;

// What a program touches through a pointer register.
struct Region {
  bool used = false;
  bool written = false;
  uint8_t when = kEveryTile;  // a changed_mask
  double tile = 0;            // bytes in a tile
  double distinct = 0;        // over all tiles
  bool again = false;         // by several tiles
};

Region region_of(const Program& program, const PointerRegister& pointer, double buffer_bytes) {
  Region region;
  region.used = pointer.buffer != kPlainInteger && pointer.high > pointer.low;
  if (!region.used) return region;
  const auto reach = static_cast<double>(pointer.high - pointer.low);
  double moves = 1;
  for (size_t d = 0; d < program.grid().size(); ++d) {
    const auto count = static_cast<double>(program.grid()[d].count);
    if (pointer.steps[d] != 0) moves *= count;
    region.again |= pointer.steps[d] == 0 && count > 1;
  }
  region.distinct = std::min(reach, buffer_bytes);
  region.tile = region.distinct / moves;
  return region;
}

// Which instructions go through which pointer register, and when.
void note_instructions(const Program& program, std::vector<Region>& regions) {
  std::vector<char> met(regions.size());
  const std::span<const uint64_t> body = program.body();
  for (size_t pc = 0; pc < body.size();) {
    const Head head = head_of(&body[pc]);
    const FormInfo& form = form_info(family_of(head));
    for (int k = 0; k < form.operand_count(); ++k) {
      const Operand operand = operand_of(&body[pc], k);
      if (operand.space() != Space::pointer) continue;
      Region& region = regions[operand.offset()];
      region.written |= form.operands[k].role != Role::reads;
      const bool again = met[operand.offset()] != 0 && region.when == kEveryTile;
      if (!again)
        region.when =
            head.changed_mask == kEveryTile ? kEveryTile : region.when | head.changed_mask;
      met[operand.offset()] = 1;
    }
    pc += head.words;
  }
}

bool is_ring(const Program& program, size_t pointer) {
  return program.header().reaches_ring(pointer);
}

// Of the bytes of a ring, those that others push out of the cache before they are used: sums are
// taken over at once, rows are read for all blocks of a line.
double ring_misses(const Program& program, size_t pointer, const Region& region, double capacity) {
  if (program.header().ring(Handed::sums).reaches(pointer)) return 0;
  return std::max(0.0, 1 - capacity / region.distinct);
}

// What a vector half of a pair touches besides its ring.
double streamed(const Program& program, std::span<const Region> regions) {
  double bytes = 0;
  for (size_t p = 0; p < regions.size(); ++p) {
    if (regions[p].used && !is_ring(program, p)) bytes += regions[p].distinct;
  }
  return bytes;
}

// Follows what the cores read, tile by tile, side by side: a block of an operand that was read
// within the last `capacity` bytes is in the cache.
class Follower {
 public:
  // `beside`: bytes that others bring into the cache with every tile.
  Follower(const Program& program, std::span<const Region> regions, double capacity, double beside)
      : program_(program),
        regions_(regions),
        capacity_(capacity),
        beside_(beside),
        reads_(regions.size()),
        misses_(regions.size()),
        last_(regions.size()) {}

  // Each core goes through its tiles in order, one of each core after the other.
  void follow(uint32_t program, const std::vector<CoreShares>& cores) {
    std::vector<Walk> walks;
    for (const CoreShares& core : cores) {
      Walk walk;
      for (const Share& share : core) {
        if (share.program != program) continue;
        ShareWalk all(program_.header(), share.groups);
        for (TileRun run; all.next(run);) walk.runs.push_back(run);
      }
      if (!walk.runs.empty()) walks.push_back(std::move(walk));
    }
    for (bool any = !walks.empty(); any;) {
      any = false;
      for (Walk& walk : walks) {
        if (walk.run == walk.runs.size()) continue;
        const TileRun& run = walk.runs[walk.run];
        read_tile(run.begin + walk.tile, walk.tile == 0);
        if (run.begin + ++walk.tile == run.end) {
          ++walk.run;
          walk.tile = 0;
        }
        any = true;
      }
    }
  }

  // Of what is read, the part that was not read lately.
  double share(size_t pointer) const {
    return reads_[pointer] > 0 ? misses_[pointer] / reads_[pointer] : 1;
  }

 private:
  struct Walk {
    std::vector<TileRun> runs;
    size_t run = 0;
    int64_t tile = 0;  // of the run
  };

  void read_tile(int64_t tile, bool first) {
    clock_ += beside_;
    const std::span<const GridDim> grid = program_.grid();
    int64_t at[kMaxGridRank] = {}, before[kMaxGridRank] = {};
    coordinates(tile, at);
    uint8_t changed = kEverythingChanged;
    if (!first) {
      coordinates(tile - 1, before);
      changed = 0;
      for (size_t d = 0; d < grid.size(); ++d) changed |= (at[d] != before[d] ? 1u : 0u) << d;
    }
    for (size_t p = 0; p < regions_.size(); ++p) {
      if (!regions_[p].used) continue;
      const PointerRegister& pointer = program_.pointers()[p];
      int64_t key = 0;
      for (size_t d = 0; d < grid.size(); ++d) key += at[d] * pointer.steps[d];
      const uint8_t when = regions_[p].when;
      if (when != kEveryTile && (when & changed) == 0) continue;  // it stays with the core
      reads_[p] += 1;
      if (!regions_[p].again) {
        misses_[p] += 1;
        clock_ += regions_[p].tile;
        continue;
      }
      const auto [entry, fresh] = last_[p].try_emplace(key, clock_);
      if (fresh || clock_ - entry->second > capacity_) {
        misses_[p] += 1;
        clock_ += regions_[p].tile;
      }
      entry->second = clock_;
    }
  }

  void coordinates(int64_t tile, int64_t* at) const {
    for (size_t d = program_.grid().size(); d-- > 0;) {
      at[d] = tile % program_.grid()[d].count;
      tile /= program_.grid()[d].count;
    }
  }

  const Program& program_;
  std::span<const Region> regions_;
  const double capacity_, beside_;
  double clock_ = 0;  // bytes that came into the cache
  std::vector<double> reads_, misses_;
  std::vector<std::unordered_map<int64_t, double>> last_;  // by pointer: when a block was read
};

}  // namespace

double CacheContents::share(int64_t buffer) const {
  double before = 0;
  for (const Used& used : used_) {
    if (used.buffer == buffer) {
      return std::clamp((capacity_ - before) / std::max(used.bytes, 1.0), 0.0, 1.0);
    }
    before += used.bytes;
    if (before >= capacity_) break;
  }
  return 0;
}

void CacheContents::touch(int64_t buffer, double bytes) {
  std::erase_if(used_, [&](const Used& used) { return used.buffer == buffer; });
  used_.push_front({buffer, bytes});
  double before = 0;
  for (auto used = used_.begin(); used != used_.end(); ++used) {
    if (before >= capacity_) {
      used_.erase(used, used_.end());
      break;
    }
    before += used->bytes;
  }
}

std::vector<std::vector<double>> miss_shares(std::span<const PlacedProgram> programs,
                                             const std::vector<CoreShares>& cores,
                                             CacheContents& cache) {
  std::vector<std::vector<Region>> regions;
  std::map<int64_t, double> touched;  // bytes by buffer
  for (const PlacedProgram& placed : programs) {
    std::vector<Region>& of_program = regions.emplace_back();
    for (const PointerRegister& pointer : placed.program->pointers()) {
      const bool plain = pointer.buffer == kPlainInteger;
      const double bytes = plain ? 0 : placed.bytes_of(pointer.buffer);
      const Region region = region_of(*placed.program, pointer, bytes);
      of_program.push_back(region);
      if (!region.used) continue;
      double& sum = touched[placed.buffer_of(pointer.buffer)];
      sum = std::min(bytes, sum + region.distinct);
    }
    note_instructions(*placed.program, of_program);
  }
  double footprint = 0;
  for (const auto& [buffer, bytes] : touched) footprint += bytes;
  // Of what is written: what the cache cannot keep.
  const double overflow =
      footprint > cache.capacity() ? (footprint - cache.capacity()) / footprint : 0;
  std::vector<std::vector<double>> misses;
  for (uint32_t i = 0; i < programs.size(); ++i) {
    const Program& program = *programs[i].program;
    const bool again = std::any_of(regions[i].begin(), regions[i].end(),
                                   [](const Region& region) { return region.again; });
    const bool follows = again && program.header().tiles <= kMostFollowed;
    const double room = overflow > 0 ? cache.capacity() : std::numeric_limits<double>::infinity();
    double beside = 0;  // of what goes with it
    for (uint32_t half = i + 1; half < i + program.header().programs(); ++half)
      beside += streamed(*programs[half].program, regions[half]);
    Follower follower(program, regions[i], room,
                      beside / static_cast<double>(program.header().tiles));
    if (follows) follower.follow(i, cores);
    std::vector<double>& of_program = misses.emplace_back();
    for (size_t p = 0; p < regions[i].size(); ++p) {
      const PointerRegister& pointer = program.pointers()[p];
      if (!regions[i][p].used) {
        of_program.push_back(0);
        continue;
      }
      const double cold = 1 - cache.share(programs[i].buffer_of(pointer.buffer));
      of_program.push_back(follows ? follower.share(p) * cold : cold);
    }
  }
  for (uint32_t i = 0; i < programs.size(); ++i) {
    for (size_t p = 0; p < regions[i].size(); ++p) {
      if (is_ring(*programs[i].program, p))
        misses[i][p] = ring_misses(*programs[i].program, p, regions[i][p], cache.capacity());
      if (!regions[i][p].written || is_ring(*programs[i].program, p)) continue;
      const bool fresh = programs[i].is_fresh(programs[i].program->pointers()[p].buffer);
      misses[i][p] = fresh ? 1 : overflow;
    }
  }
  for (const auto& [buffer, bytes] : touched) cache.touch(buffer, bytes);
  return misses;
}

}  // namespace dvm
