// How fast this machine can be: what no kernel can beat, measured.
#pragma once

#include "vm/core.h"

namespace dvm {

struct Ceilings {
  double flops = 0;  // f32 multiply-adds, two operations each, per second
  double copy_bytes =
      0;  // read and written by copies between buffers larger than caches, per second
};

// Over so many cores at once, with the instructions of an available level; the best of several
// tries, about a fifth of a second and 256 MiB in all. Other work on the machine makes it less.
Ceilings measure_ceilings(int cores, const InstructionTable& table);

}  // namespace dvm
