// What of a program's transfers the shared cache answers.
//
// The cache is a list of buffers, the one used last first: of a buffer lies in it what the ones
// before it leave room for. Within a program, an operand that moves along some dims of the grid
// only is read again: where all that the stage touches fits the cache, from there; else where what
// the cores touch in between does. Bytes are those of tiles; which lines of the cache they fall
// into is not asked.
//
// What is written stays in the cache as far as it fits. In fresh memory it displaces what others
// left there, which has to be written back: it costs as much of memory. Memory that serves again is
// written over in the cache.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <span>
#include <vector>

#include "npu/simulator/stage_timing.h"
#include "vm/program.h"

namespace dvm {

// Contents of the cache between stages.
class CacheContents {
 public:
  explicit CacheContents(double bytes) : capacity_(bytes) {}

  // The part of a buffer that lies in the cache. Buffers are what the caller says they are.
  double share(int64_t buffer) const;
  // The buffer was used now.
  void touch(int64_t buffer, double bytes);
  void clear() { used_.clear(); }
  double capacity() const { return capacity_; }

 private:
  struct Used {
    int64_t buffer;
    double bytes;
  };

  double capacity_;
  std::list<Used> used_;  // the last one first
};

// What a program touches through a pointer register.
struct Region {
  bool used = false;
  bool written = false;
  uint8_t when = 0;     // a changed_mask; 0: in every tile
  double tile = 0;      // bytes in a tile
  double distinct = 0;  // over all tiles
  bool again = false;   // by several tiles

  bool operator==(const Region&) const = default;
};

// What cores read again within a program, followed tile by tile. Stages of the same programs are
// dealt out alike, so that each is followed once.
class FollowedReads {
 public:
  struct Reads {
    std::vector<const Program*> stage;
    uint32_t program = 0;         // of them
    std::vector<Region> regions;  // of it, by pointer register
    double capacity = 0;          // of the cache
    double beside = 0;            // bytes that others bring there with every tile

    bool operator==(const Reads&) const = default;
  };

  // By pointer register: of what is read, the part that was not read lately.
  const std::vector<double>& misses(const Reads& reads, const std::vector<CoreShares>& cores);

 private:
  struct Known {
    Reads reads;
    std::vector<double> misses;
  };
  std::deque<Known> known_;
};

// A program of a stage, and the buffers behind its arguments.
struct PlacedProgram {
  const Program* program = nullptr;
  std::span<const int64_t> buffers;  // by argument
  std::span<const double> bytes;     // of them
  std::span<const char> fresh;       // of them: memory that nobody has used lately
  int64_t workspace = 0;             // its buffer
  double workspace_bytes = 0;

  int64_t buffer_of(int64_t argument) const {
    return argument == kWorkspace ? workspace : buffers[static_cast<size_t>(argument)];
  }
  bool is_fresh(int64_t argument) const {
    return argument != kWorkspace && fresh[static_cast<size_t>(argument)] != 0;
  }
  double bytes_of(int64_t argument) const {
    return argument == kWorkspace ? workspace_bytes : bytes[static_cast<size_t>(argument)];
  }
};

// The part that memory answers, by program and pointer register. The cache then holds what the
// stage touched.
std::vector<std::vector<double>> miss_shares(std::span<const PlacedProgram> programs,
                                             const std::vector<CoreShares>& cores,
                                             CacheContents& cache, FollowedReads& followed);

}  // namespace dvm
