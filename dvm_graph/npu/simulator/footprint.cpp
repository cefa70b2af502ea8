#include "npu/simulator/footprint.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "vm/shares.h"

namespace dvm {
namespace {

constexpr int64_t kMostFollowed = 1 << 20;  // tiles whose reads are followed one by one

constexpr uint8_t kEveryTile = 0;

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
  explicit Follower(const FollowedReads::Reads& reads)
      : reads_(reads), program_(*reads.stage[reads.program]) {
    for (size_t p = 0; p < reads.regions.size(); ++p) {
      const Region& region = reads.regions[p];
      if (!region.used) continue;
      Followed& followed = followed_.emplace_back();
      followed.pointer = p;
      followed.region = region;
      if (region.again) number_blocks(followed);
    }
  }

  // Each core goes through its tiles in order, one of each core after the other.
  void follow(const std::vector<CoreShares>& cores) {
    std::vector<Walk> walks;
    for (const CoreShares& core : cores) {
      Walk walk;
      for (const Share& share : core) {
        if (share.program != reads_.program) continue;
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
        if (walk.tile == 0) {
          go_to(run.begin, walk.at);
          read_tile(walk.at, kEverythingChanged);
        } else {
          read_tile(walk.at, step(walk.at));
        }
        if (run.begin + ++walk.tile == run.end) {
          ++walk.run;
          walk.tile = 0;
        }
        any = true;
      }
    }
  }

  // By pointer register: of what is read, the part that was not read lately.
  std::vector<double> misses() const {
    std::vector<double> found(reads_.regions.size(), 1);
    for (const Followed& followed : followed_) {
      if (followed.reads > 0) found[followed.pointer] = followed.misses / followed.reads;
    }
    return found;
  }

 private:
  using Coordinates = std::array<int64_t, kMaxGridRank>;
  static constexpr double kNever = -1;

  struct Walk {
    std::vector<TileRun> runs;
    size_t run = 0;
    int64_t tile = 0;  // of the run
    Coordinates at = {};
  };

  struct Followed {
    size_t pointer = 0;
    Region region;
    Coordinates numbers = {};  // of blocks: steps along the dims of the grid
    std::vector<double> last;  // when a block was read, by number
    double reads = 0, misses = 0;
  };

  // Of the blocks that the pointer goes to.
  void number_blocks(Followed& followed) const {
    const std::span<const GridDim> grid = program_.grid();
    int64_t blocks = 1;
    for (size_t d = grid.size(); d-- > 0;) {
      if (program_.pointers()[followed.pointer].steps[d] == 0) continue;
      followed.numbers[d] = blocks;
      blocks *= grid[d].count;
    }
    followed.last.assign(static_cast<size_t>(blocks), kNever);
  }

  void read_tile(const Coordinates& at, uint8_t changed) {
    clock_ += reads_.beside;
    for (Followed& followed : followed_) {
      const Region& region = followed.region;
      if (region.when != kEveryTile && (region.when & changed) == 0) continue;  // it stays there
      followed.reads += 1;
      if (!region.again) {
        followed.misses += 1;
        clock_ += region.tile;
        continue;
      }
      int64_t block = 0;
      for (size_t d = 0; d < program_.grid().size(); ++d) block += at[d] * followed.numbers[d];
      double& last = followed.last[static_cast<size_t>(block)];
      if (last == kNever || clock_ - last > reads_.capacity) {
        followed.misses += 1;
        clock_ += region.tile;
      }
      last = clock_;
    }
  }

  void go_to(int64_t tile, Coordinates& at) const {
    for (size_t d = program_.grid().size(); d-- > 0;) {
      at[d] = tile % program_.grid()[d].count;
      tile /= program_.grid()[d].count;
    }
  }

  // To the next tile; which coordinates change.
  uint8_t step(Coordinates& at) const {
    uint8_t changed = 0;
    for (size_t d = program_.grid().size(); d-- > 0;) {
      if (program_.grid()[d].count > 1) changed |= static_cast<uint8_t>(1u << d);
      if (++at[d] < program_.grid()[d].count) break;
      at[d] = 0;
    }
    return changed;
  }

  const FollowedReads::Reads& reads_;
  const Program& program_;
  double clock_ = 0;  // bytes that came into the cache
  std::vector<Followed> followed_;
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

const std::vector<double>& FollowedReads::misses(const Reads& reads,
                                                 const std::vector<CoreShares>& cores) {
  for (const Known& known : known_) {
    if (known.reads == reads) return known.misses;
  }
  Follower follower(reads);
  follower.follow(cores);
  return known_.emplace_back(reads, follower.misses()).misses;
}

std::vector<std::vector<double>> miss_shares(std::span<const PlacedProgram> programs,
                                             const std::vector<CoreShares>& cores,
                                             CacheContents& cache, FollowedReads& followed) {
  std::vector<std::vector<Region>> regions;
  std::vector<const Program*> stage;
  std::map<int64_t, double> touched;  // bytes by buffer
  for (const PlacedProgram& placed : programs) {
    stage.push_back(placed.program);
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
    beside /= static_cast<double>(program.header().tiles);
    std::vector<double>& of_program = misses.emplace_back(regions[i].size(), 1);
    if (follows) of_program = followed.misses({stage, i, regions[i], room, beside}, cores);
    for (size_t p = 0; p < regions[i].size(); ++p) {
      const int64_t buffer = program.pointers()[p].buffer;
      of_program[p] *= regions[i][p].used ? 1 - cache.share(programs[i].buffer_of(buffer)) : 0;
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
