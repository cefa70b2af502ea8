#include "npu/simulator/shares.h"

#include <algorithm>
#include <cmath>

#include "npu/simulator/work.h"

namespace dvm {
namespace {

bool on_cube(const Program& program) { return program.header().kind != KernelKind::vector; }

// Cycles of the longest queue for the first tile, with an equal share of memory's bandwidth.
double tile_cost(const Program& program, const NpuPart& part) {
  ProgramWork work(program, part, {});
  std::vector<TileClass> tiles;
  work.classes(0, 1, tiles);
  const double cores = on_cube(program) ? part.cores_cube : part.cores_vector;
  double queues[kUnitQueues] = {};
  for (const UnitStep& step : work.steps(tiles[0])) {
    queues[step.queue] += step.cycles + step.memory_bytes * cores / part.memory_rate();
  }
  return std::max(1.0, *std::max_element(queues, queues + kUnitQueues));
}

// Programs of one kind, one after the other along so many cores.
void deal(std::span<const Program* const> programs, const std::vector<uint32_t>& chosen,
          const std::vector<double>& costs, int64_t cores, std::vector<CoreShares>& out) {
  const size_t first = out.size();
  out.resize(first + static_cast<size_t>(cores));
  double all = 0;
  for (const uint32_t p : chosen)
    all += costs[p] * static_cast<double>(programs[p]->header().tiles);
  double done = 0;
  for (const uint32_t p : chosen) {
    const ProgramHeader& header = programs[p]->header();
    const int64_t groups = header.tiles / header.tile_group;
    const double cost = costs[p] * static_cast<double>(header.tile_group);
    for (int64_t group = 0; group < groups;) {
      // The core that the group's middle falls to, and all that fall to it, too.
      int64_t core = 0, end = groups;
      if (chosen.size() == 1) {
        const int64_t each = (groups + cores - 1) / cores;
        core = group / each;
        end = std::min(groups, (core + 1) * each);
      } else {
        const double per_core = all / static_cast<double>(cores);
        core = std::min(cores - 1, static_cast<int64_t>((done + cost / 2) / per_core));
        const double until = static_cast<double>(core + 1) * per_core;
        if (core + 1 < cores) {
          const auto more = static_cast<int64_t>(std::ceil((until - done - cost / 2) / cost));
          end = std::min(groups, group + std::max<int64_t>(more, 1));
        }
      }
      out[first + static_cast<size_t>(core)].push_back(
          {p, group * header.tile_group, end * header.tile_group});
      done += cost * static_cast<double>(end - group);
      group = end;
    }
  }
}

constexpr double kMostUneven = 1.15;  // blocks of a core, over those of even shares

// Blocks of a product that cores work at side by side: rows of regions and columns of them.
struct Regions {
  int64_t rows = 0, columns = 0;
  double seconds = 0;  // in cycles: of the core with the most blocks, or of memory
};

// What reading takes where the cores walk such regions in step: those of one row of regions read
// the same blocks of one operand, those of one column the same of the other.
class ProductDeal {
 public:
  ProductDeal(const Program& program, const NpuPart& part) : program_(program), part_(part) {
    const size_t chunks = program.header().chunk_dim;
    if (chunks < 2 || program.header().tiles == 0) return;
    rows_ = program.grid()[chunks - 2].count;
    columns_ = program.grid()[chunks - 1].count;
    if (rows_ * columns_ * program.header().tile_group != program.header().tiles)
      return;  // batches
    for (const PointerRegister& pointer : program.pointers()) {
      if (pointer.buffer == kPlainInteger) continue;
      const auto bytes = static_cast<double>(pointer.high - pointer.low);
      const bool along_rows = pointer.steps[chunks - 2] != 0;
      const bool along_columns = pointer.steps[chunks - 1] != 0;
      if (along_rows && !along_columns) by_rows_ += bytes;
      if (along_columns && !along_rows) by_columns_ += bytes;
    }
    applies_ = by_rows_ > 0 && by_columns_ > 0;
  }

  // Of all ways to lay the cores out, the one that takes least; no rows: tiles are not blocks of a
  // product, or none is even.
  Regions choose(int64_t cores) const {
    Regions best;
    for (int64_t rows = 1; applies_ && rows <= cores; ++rows) {
      if (cores % rows != 0) continue;
      const double most = static_cast<double>(each(rows_, rows) * each(columns_, cores / rows));
      if (most > kMostUneven * static_cast<double>(each(rows_ * columns_, cores))) continue;
      const Regions found = weigh(rows, cores / rows);
      if (best.rows == 0 || found.seconds < best.seconds) best = found;
    }
    return best;
  }

  std::vector<CoreShares> deal(const Regions& regions) const {
    const int64_t group = program_.header().tile_group;
    const int64_t high = each(rows_, regions.rows), wide = each(columns_, regions.columns);
    std::vector<CoreShares> cores;
    for (int64_t i = 0; i < regions.rows; ++i) {
      for (int64_t j = 0; j < regions.columns; ++j) {
        CoreShares& core = cores.emplace_back();
        const int64_t first = j * wide, end = std::min(columns_, first + wide);
        const int64_t top = i * high, bottom = std::min(rows_, top + high);
        if (first >= end || top >= bottom) continue;
        if (regions.columns == 1) {
          core.push_back({0, top * columns_ * group, bottom * columns_ * group});
          continue;
        }
        for (int64_t row = top; row < bottom; ++row) {
          core.push_back({0, (row * columns_ + first) * group, (row * columns_ + end) * group});
        }
      }
    }
    return cores;
  }

 private:
  static int64_t each(int64_t blocks, int64_t parts) { return (blocks + parts - 1) / parts; }

  Regions weigh(int64_t rows, int64_t columns) const {
    const auto high = static_cast<double>(each(rows_, rows));
    const auto wide = static_cast<double>(each(columns_, columns));
    const double row = by_rows_ / static_cast<double>(rows_);
    const double column = by_columns_ / static_cast<double>(columns_);
    // The blocks of a step stay for the next one; what is walked again stays if there is room.
    const double step = row * static_cast<double>(rows) + column * static_cast<double>(columns);
    const double again = row * static_cast<double>(rows) + by_columns_;
    const double bytes = by_rows_ * (step <= part_.memory_l2 ? 1 : wide) +
                         by_columns_ * (again <= part_.memory_l2 ? 1 : high);
    const double work = high * wide * block_cost();
    return {rows, columns, std::max(work, bytes / part_.memory_rate())};
  }

  // Cycles of a block, if nothing has to be waited for.
  double block_cost() const {
    ProgramWork work(program_, part_, {});
    std::vector<TileClass> tiles;
    work.classes(0, 1, tiles);
    double cube = 1;
    for (const UnitStep& step : work.steps(tiles[0])) {
      if (step.flops > 0) cube += step.cycles;
    }
    return cube * static_cast<double>(program_.header().tile_group);
  }

  const Program& program_;
  const NpuPart& part_;
  int64_t rows_ = 0, columns_ = 0;
  double by_rows_ = 0, by_columns_ = 0;  // bytes of the operands that move along either
  bool applies_ = false;
};

}  // namespace

std::vector<CoreShares> deal_tiles(std::span<const Program* const> programs, const NpuPart& part) {
  if (programs.size() == 1 && on_cube(*programs[0])) {
    const ProductDeal product(*programs[0], part);
    const Regions regions = product.choose(static_cast<int64_t>(part.cores_cube));
    if (regions.rows > 0) return product.deal(regions);
  }
  std::vector<uint32_t> kinds[2];  // vector programs, and those with a cube unit
  std::vector<double> costs;
  double work[2] = {};  // in cycles of the cores they would have alone
  for (uint32_t p = 0; p < programs.size(); ++p) {
    const bool cube = on_cube(*programs[p]);
    kinds[cube].push_back(p);
    costs.push_back(programs.size() > 1 ? tile_cost(*programs[p], part) : 1);
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
  std::vector<CoreShares> out;
  if (cubes > 0) deal(programs, kinds[1], costs, cubes, out);
  const auto vectors =
      static_cast<int64_t>((part.cores_cube - static_cast<double>(cubes)) * part.vector_per_cube());
  if (!kinds[0].empty()) deal(programs, kinds[0], costs, std::max<int64_t>(vectors, 1), out);
  return out;
}

}  // namespace dvm
