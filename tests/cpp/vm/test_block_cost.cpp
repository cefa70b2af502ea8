// The predicted cost of blocks, as the pure function that it is, and the search over it.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "../targets.h"
#include "check.h"
#include "vm/block_cost.h"

namespace dvm::testing {
namespace {

BlockProblem product(int64_t m, int64_t n, int64_t k) {
  BlockProblem problem;
  problem.m = m, problem.n = n, problem.k = k;
  problem.panels = true;
  return problem;
}

Target device(int64_t cores) {
  Target target = plain_target();
  target.cores = cores;
  target.local_bytes = 768 << 10;
  target.matmul_rows = 126;
  target.matmul_k_block = 1024;
  target.costs.tile_start = 4096;
  target.costs.stage_start = 131072;
  return target;
}

bool near(double a, double b) { return a - b < 1e-9 * b && b - a < 1e-9 * b; }

void check_terms() {
  const CubeTerms terms(plain_target());
  CHECK(near(terms.near, 1) && near(terms.passing, 2) && near(terms.far, 4), "caches");
  CHECK(near(terms.row_block, 1), "a B in place");
  CHECK(near(terms.read_far, 8) && near(terms.from_rows, 16) && near(terms.passed, 40), "memory");
  CHECK(near(terms.pack, 8) && near(terms.pack_rows, 10), "packing");
  CHECK(near(terms.first_of_row, 600) && near(terms.first_of_packed_row, 200), "latency");
  CHECK(near(terms.first_panel, 2) && near(terms.far_window, 24), "what is not fetched ahead");
  CHECK(near(terms.vector_operation, 6) && near(terms.block_start, 1500), "starts");
  CHECK(terms.room_in_set == 4, "ways");
}

// What depends on the time unit is none.
void check_units() {
  Target quick = device(2);
  Costs& costs = quick.costs;
#define DVM_COST(name, unit, least, most, meaning)               \
  if (std::string_view(unit).ends_with("/s")) costs.name *= 3e9; \
  if (std::string_view(unit) == "s") costs.name /= 3e9;
#include "vm/target.def"
  for (const int64_t m : {1, 128, 3000}) {
    const BlockProblem problem = product(m, 768, 3072);
    const BlockShape a = choose_block(problem, device(2), 768 << 10),
                     b = choose_block(problem, quick, 768 << 10);
    CHECK(a.rows == b.rows && a.columns == b.columns && a.k_block == b.k_block, "%d rows",
          static_cast<int>(m));
    CHECK(near(a.cost, b.cost), "%g and %g", a.cost, b.cost);
  }
}

void check_parts() {
  const BlockProblem problem = product(252, 768, 768);
  BlockShape shape;
  shape.rows = 126, shape.columns = 256, shape.k_block = 768;
  const BlockCost cost = cost_of(problem, device(3), shape);
  CHECK(cost.waves == 2, "%g tiles of 6 on 3 cores", cost.waves);
  CHECK(near(cost.total(), (cost.waves + cost.late) * (cost.tile + cost.above) + cost.passed),
        "the whole is more than its parts");
  CHECK(cost.tile > 126.0 * 256 * 768 && cost.tile < 1.5 * 126 * 256 * 768, "%g", cost.tile);
  CHECK(cost.passed > 0 && cost_of(problem, device(1), shape).passed == 0, "rows between cores");
  shape.k_block = 384;
  CHECK(cost_of(problem, device(3), shape).above > cost.above, "two blocks of k for one");
}

// Nothing gets cheaper on a slower machine.
void check_slower() {
  const BlockProblem problem = product(126, 768, 768);
  BlockShape shape;
  shape.rows = 126, shape.columns = 256, shape.k_block = 384;
  const Target target = device(2);
  const double before = cost_of(problem, target, shape).total();
  for (double Costs::* rate :
       {&Costs::private_read, &Costs::shared_read, &Costs::memory_read, &Costs::core_transfer,
        &Costs::epilogue_elements, &Costs::pack_elements}) {
    Target slower = target;
    slower.costs.*rate /= 4;
    CHECK(cost_of(problem, slower, shape).total() >= before, "a rate");
  }
  for (double Costs::* time : {&Costs::tile_start, &Costs::block_start, &Costs::late_core}) {
    Target slower = target;
    slower.costs.*time *= 4;
    CHECK(cost_of(problem, slower, shape).total() > before, "a time");
  }
}

// Of all shapes of whole register blocks and panels, few are predicted to be better, and little.
void check_search(int64_t m, int64_t n, int64_t k, int64_t cores) {
  const BlockProblem problem = product(m, n, k);
  const Target target = device(cores);
  const BlockShape best = choose_block(problem, target, target.local_bytes);
  const double found = cost_of(problem, target, best).total();
  double least = found;
  for (int64_t rows = std::min(m, target.matmul_mr); rows <= m; rows += target.matmul_mr) {
    for (int64_t columns = 32; columns <= n; columns += 32) {
      for (const bool rows_outer : {false, true}) {
        BlockShape shape = best;
        shape.rows = rows, shape.columns = columns, shape.rows_outer = rows_outer;
        least = std::min(least, cost_of(problem, target, shape).total());
      }
    }
  }
  CHECK(found <= 1.1 * least, "[%d, %d, %d] on %d cores: %g, and %g was to be had",
        static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), static_cast<int>(cores),
        found, least);
}

}  // namespace
}  // namespace dvm::testing

int main() {
  using namespace dvm::testing;
  check_terms();
  check_units();
  check_parts();
  check_slower();
  for (const int64_t cores : {1, 2, 8}) {
    for (const int64_t m : {1, 16, 77, 128, 500, 2048}) {
      check_search(m, 768, 768, cores);
      check_search(m, 3072, 768, cores);
      check_search(m, 64, 576, cores);
    }
  }
  std::printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
