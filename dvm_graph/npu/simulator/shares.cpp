#include "npu/simulator/shares.h"

#include <algorithm>
#include <cmath>

#include "kernels/numbers.h"
#include "npu/simulator/work.h"

namespace dvm {
namespace {

constexpr double kMostUneven = 1.15;  // groups of a core, over those of even shares

// Cycles of the longest queue for the first tile, with an equal share of memory's bandwidth.
double tile_cost(const Program& program, const NpuPart& part) {
  ProgramWork work(program.view(), part, {});
  std::vector<TileClass> tiles;
  const GroupRange first{0, 1};
  work.classes({&first, 1}, 0, tiles);
  const double cores = program.header().on_cube() ? part.cores_cube : part.cores_vector;
  double queues[kUnitQueues] = {};
  for (const UnitStep& step : work.steps(tiles[0])) {
    queues[step.queue] += step.cycles + step.memory_bytes * cores / part.memory_rate();
  }
  return std::max(1.0, *std::max_element(queues, queues + kUnitQueues));
}

// About as many groups for each core.
bool fills(const Program& program, int64_t cores) {
  const int64_t groups = program.header().groups();
  return static_cast<double>(ceil_div(groups, cores) * cores) <=
         kMostUneven * static_cast<double>(groups);
}

// What the programs touch of memory, each for itself.
double touched(std::span<const Program* const> programs) {
  int64_t bytes = 0;
  for (const Program* program : programs) {
    for (const PointerRegister& pointer : program->pointers()) {
      if (pointer.buffer != kPlainInteger) bytes += pointer.high - pointer.low;
    }
  }
  return static_cast<double>(bytes);
}

// Programs of one kind to so many cores: those that fill them `in_turn`, the others one after the
// other along the cores.
void deal(std::span<const Program* const> programs, std::vector<uint32_t> chosen,
          const std::vector<double>& costs, int64_t cores, bool in_turn,
          std::vector<CoreShares>& out) {
  const size_t first = out.size();
  out.resize(first + static_cast<size_t>(cores));
  const bool alone = chosen.size() == 1;
  std::erase_if(chosen, [&](uint32_t p) {
    if (!alone && !(in_turn && fills(*programs[p], cores))) return false;
    for (int64_t core = 0; core < cores; ++core) {
      Share share{p, {}};
      share_of(*programs[p], core, cores, share.groups);
      if (!share.groups.empty()) out[first + static_cast<size_t>(core)].push_back(std::move(share));
    }
    return true;
  });
  double all = 0;
  for (const uint32_t p : chosen)
    all += costs[p] * static_cast<double>(programs[p]->header().tiles);
  const double per_core = all / static_cast<double>(cores);
  double done = 0;
  for (const uint32_t p : chosen) {
    const ProgramHeader& header = programs[p]->header();
    const int64_t groups = header.groups();
    const double cost = costs[p] * static_cast<double>(header.tile_group);
    for (int64_t group = 0; group < groups;) {
      // The core that the group's middle falls to, and all that fall to it, too.
      const int64_t core = std::min(cores - 1, static_cast<int64_t>((done + cost / 2) / per_core));
      const double until = static_cast<double>(core + 1) * per_core;
      int64_t end = groups;
      if (core + 1 < cores) {
        const auto more = static_cast<int64_t>(std::ceil((until - done - cost / 2) / cost));
        end = std::min(groups, group + std::max<int64_t>(more, 1));
      }
      out[first + static_cast<size_t>(core)].push_back({p, {{group, end}}});
      done += cost * static_cast<double>(end - group);
      group = end;
    }
  }
}

}  // namespace

std::vector<CoreShares> deal_tiles(std::span<const Program* const> programs, const NpuPart& part) {
  std::vector<uint32_t> kinds[2];  // vector programs, and those with a cube unit
  std::vector<double> costs;
  double work[2] = {};  // in cycles of the cores they would have alone
  for (uint32_t p = 0; p < programs.size(); ++p) {
    const bool cube = programs[p]->header().on_cube();
    const bool beside = programs[p]->header().beside_cube();
    const auto same =
        static_cast<uint32_t>(std::ranges::find(programs, programs[p]) - programs.begin());
    costs.push_back(programs.size() == 1 || beside ? 1
                    : same < p                     ? costs[same]
                                                   : tile_cost(*programs[p], part));
    if (beside) continue;
    kinds[cube].push_back(p);
    work[cube] += costs[p] * static_cast<double>(programs[p]->header().tiles) /
                  (cube ? part.cores_cube : part.cores_vector);
  }
  auto cubes = static_cast<int64_t>(part.cores_cube);
  if (kinds[0].empty()) {
    work[1] = 1;
  } else if (!kinds[1].empty()) {
    const double share = work[1] / (work[0] + work[1]);
    cubes = std::clamp<int64_t>(std::llround(share * part.cores_cube), 1, cubes - 1);
  } else {
    cubes = 0;
  }
  const bool in_turn = touched(programs) > part.memory_l2;
  std::vector<CoreShares> out;
  if (cubes > 0) deal(programs, kinds[1], costs, cubes, in_turn, out);
  const auto vectors =
      static_cast<int64_t>((part.cores_cube - static_cast<double>(cubes)) * part.vector_per_cube());
  if (!kinds[0].empty())
    deal(programs, kinds[0], costs, std::max<int64_t>(vectors, 1), in_turn, out);
  return out;
}

}  // namespace dvm
