// Which core runs which tiles of a stage: static, contiguous shares, as the paper's Algorithm 2
// deals them out.
#pragma once

#include <span>
#include <vector>

#include "npu/simulator/part.h"
#include "npu/simulator/stage_timing.h"
#include "vm/program.h"

namespace dvm {

// A program alone is dealt out as vm/shares.h says, to cores of its kind: vector cores, or cube
// cores. Programs side by side (spatial stacking) follow each other along the cores, each core with
// as much to do, by the time that their tiles are predicted to take; but where they touch more than
// the shared cache holds, those that fill all cores go to all of them in turn, so that cores read
// the same operands at the same time. Cube and vector
// programs each get a part of the cube cores with the vector cores that go with them. The vector
// halves of pairs go with the programs before them.
std::vector<CoreShares> deal_tiles(std::span<const Program* const> programs, const NpuPart& part);

}  // namespace dvm
