// Which core runs which tiles of a stage: static, contiguous shares, as the paper's Algorithm 2
// deals them out.
#pragma once

#include <span>
#include <vector>

#include "npu/simulator/part.h"
#include "npu/simulator/stage_timing.h"
#include "vm/program.h"

namespace dvm {

// A program alone gets ceil(tiles / cores) on each core of its kind: vector cores, or cube cores.
// The blocks of a product alone are cut into as many regions as there are cores, so that cores
// which work side by side read the same blocks of its operands at the same time, which is what the
// paper's swizzles are for: of all ways to lay the regions out, the one that is predicted to take
// least, for the cube units and for memory.
// Programs side by side (spatial stacking) follow each other along the cores, each core with as
// much to do, by the time that their tiles are predicted to take; cube and vector programs each get
// a part of the cube cores with the vector cores that go with them. Tiles of a group stay together.
std::vector<CoreShares> deal_tiles(std::span<const Program* const> programs, const NpuPart& part);

}  // namespace dvm
