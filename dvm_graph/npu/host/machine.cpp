#include "npu/host/machine.h"

#include <cmath>

namespace dvm {
namespace {

constexpr int64_t kTileRows = 128;  // of a product's tile, about
constexpr int64_t kDotRows = 4;     // the cube unit has a loop for so few

int64_t round_down(int64_t a, int64_t b) { return a / b * b; }
int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// Parts of B are not multiplied before all of a panel is split, so that it waits for memory.
Splitting splitting_of(const LevelInfo& level, const Costs& costs) {
  if (level.split_rows == 0 || costs.split_multiply_adds == 0) return {};
  const auto per = [&](double rate) { return costs.multiply_adds / rate; };
  return {.rows = level.split_rows,
          .multiply = per(costs.split_multiply_adds),
          .a = per(costs.split_a_elements),
          .b = per(costs.split_b_elements) + costs.per_element(costs.memory_read)};
}

// Tiles until the last core is done. Tables say it of two, one of which is late in so many cases
// because another thread or machine has part of it; of more, the last one is where any of them is.
double late_of(int cores, double of_two) { return 1 - std::pow(1 - of_two, cores / 2.0); }

}  // namespace

Target host_target(int cores, const LevelInfo& level, const Machine& machine) {
  constexpr int64_t kFloat = sizeof(float);
  const Caches& caches = machine.caches;
  Target target;
  target.name = "host";
  target.cores = cores;
  target.line_bytes = caches.line_bytes;
  target.first_bytes = caches.first_bytes;
  target.ways = caches.first_ways;
  target.way_bytes = caches.first_bytes / caches.first_ways;
  target.private_bytes = caches.private_bytes;
  target.shared_bytes = caches.shared_bytes;
  target.local_bytes = round_down(caches.private_bytes * 3 / 4, caches.line_bytes);
  // More than there is of it: of what is live, joined instructions keep most in registers.
  target.vector_tile_bytes = caches.first_bytes * 4 / 3;
  // What was read lies there, too, and other processes share it.
  target.stream_bytes = caches.shared_bytes / 3;
  target.vector_bytes = level.vector_bytes;
  target.matmul_nr = level.matmul_nr;
  target.matmul_mr = level.matmul_mr;
  target.matmul_rows = round_up(kTileRows, level.matmul_mr);
  // A block of A takes half of the core's own cache: longer ones push panels of B out of it.
  target.matmul_k_block = caches.private_bytes / 2 / (kTileRows * kFloat);
  target.splitting = splitting_of(level, machine.costs);
  target.dot_rows = kDotRows;
  target.queues = target.places = 1;
  target.unified_memory = target.computes_bytes = target.joins = target.fetches = true;
  target.computes_in[static_cast<size_t>(Family::v_copy)] = dtype_list::bit(DType::f16);
  target.costs = machine.costs;
  target.costs.late_core = late_of(cores, machine.costs.late_core);
  return target;
}

}  // namespace dvm
