// Bytes that tiles of a vector kernel need while its operators follow each other.
#pragma once

#include "kernels/normalise.h"
#include "vm/target.h"

namespace dvm {

inline constexpr int kMaxNodes = 256;  // of a plan that are followed one by one

// Bytes that one element of a tile needs at the peak: the live operators of Algorithm 1, weighted
// by their size.
struct LiveBytes {
  double local = 0;   // in local memory: without what is absorbed into global accesses
  double cached = 0;  // with absorbed values that are touched more than once
};
LiveBytes peak_live_bytes(const NormalPlan& plan, const Target& target);

}  // namespace dvm
