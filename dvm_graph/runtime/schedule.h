// What is known about a model's run before any shape is: lifetimes of values and segments of steps.
//
// A *segment* is a run of steps whose dims are all known when it starts: it ends behind a call
// of the vendor library or of control flow that binds symbols. Memory is laid out when a segment
// starts, for the values that it defines.
//
// A value may be written over one that the same call reads for the last time (runtime/in_place.h).
//
// A value that only the fallback calls of one launch touch is *local* to that step: it takes memory
// only when the fallback runs.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model.h"

namespace dvm {

struct Lifetime {
  int32_t first = -1, last = -1;  // steps, inclusive; first is -1 where no step writes the value
};

struct Segment {
  uint32_t first_step = 0, end_step = 0;
  std::vector<uint32_t> arena, outputs;  // values first written here, by storage
  std::vector<int32_t> over;          // by entry of `arena`: the one it may be written over, or -1
  std::vector<uint32_t> dims_writes;  // steps; carried out when the segment starts
};

struct Schedule {
  std::vector<Lifetime> lifetimes;  // by value
  std::vector<Segment> segments;
  std::vector<char> local;                   // by value: local to one step
  std::vector<std::vector<uint32_t>> dying;  // by step: vendor results last used in it
};

Schedule make_schedule(const Model& model);

}  // namespace dvm
