// Random plans compiled for the host device and run by its instructions, at every instruction-set
// level of this machine, against the reference evaluation of plans.
//
//   test_on_host [first seed] [number of seeds]
#include <cstdio>
#include <cstdlib>

#include "../targets.h"
#include "check.h"
#include "common_kernels.h"
#include "npu/host/levels.h"
#include "random_plan.h"
#include "reference_plan.h"
#include "vm/disassemble.h"

namespace dvm::testing {
namespace {

// The host's units with the memory and block sizes of a random target.
Target host_like(const Target& random, const InstructionTable& table) {
  Target target = host_target(static_cast<int>(random.cores), table, plain_machine());
  target.local_bytes = random.local_bytes;
  target.vector_tile_bytes = random.vector_tile_bytes;
  target.matmul_rows = random.matmul_rows / random.matmul_mr * target.matmul_mr;
  target.matmul_k_block = random.matmul_k_block;
  target.costs = random.costs;
  target.stream_bytes = random.stream_bytes;
  return target;
}

void check_plan(const PlanBuilder& b, const Target& target, const InstructionTable& table,
                unsigned seed, CompilerScratch& scratch, CompiledKernel& kernel) {
  const CompileStatus status =
      compile_kernel(b.plan, b.dims.data(), b.values.data(), target, scratch, kernel);
  if (status != CompileStatus::ok) return;
  Random random(seed);
  Buffers want(b.values, 0), got(b.values, kernel.workspace_bytes);
  want.randomise(b.values, random);
  fill_levels(b, target.matmul_nr, want, random);
  got.copy_from(want, b.values);
  reference::run_plan(b.plan, b.dims.data(), b.values.data(), want.table(), target.matmul_nr);
  run_kernel(kernel, table, target.cores, static_cast<size_t>(target.local_bytes), got.table());
  const std::string wrong = difference(b.values, want, got, 1e-4);
  CHECK(wrong.empty(), "%s, seed %u: %s\n%s", table.name, seed, wrong.c_str(),
        disassemble(kernel.programs[0]).c_str());
}

void check_level(const InstructionTable& table, unsigned first, unsigned count) {
  CompilerScratch scratch;
  CompiledKernel kernel;
  for (unsigned seed = first; seed < first + count; ++seed) {
    Random random(seed);
    const PlanBuilder vector = random_vector_plan(random);
    const PlanBuilder cube = random_cube_plan(random, table.matmul_nr);
    const PlanBuilder deep = random_deep_plan(random, table.matmul_nr);
    const Target target = host_like(random_target(random), table);
    check_plan(vector, target, table, seed, scratch, kernel);
    check_plan(cube, target, table, seed, scratch, kernel);
    check_plan(deep, target, table, seed, scratch, kernel);
  }
}

// Tiles of passes that take turns on rows hold more than the first-level cache, those of others,
// and of too few rows, do not.
void check_rows(const InstructionTable& table) {
  CompilerScratch scratch;
  CompiledKernel kernel;
  Target target = host_target(1, table, plain_machine());
  target.vector_tile_bytes = 4096;
  const auto tile_bytes = [&](const PlanBuilder& b, int64_t columns) {
    check_plan(b, target, table, 1, scratch, kernel);
    return kernel.programs[0].grid()[0].tile * columns * 4;
  };
  for (const int64_t columns : {127, 128, 129, 300}) {
    const bool by_rows = columns >= 128;
    CHECK((tile_bytes(layer_norm(1021, columns), columns) > 4096) == by_rows, "%s, %d columns",
          table.name, static_cast<int>(columns));
    CHECK(tile_bytes(layer_norm(61, columns), columns) <= 4096, "%s, few rows", table.name);
    CHECK(tile_bytes(softmax(1021, columns), columns) <= 4096, "%s, rows that are kept",
          table.name);
  }
}

}  // namespace
}  // namespace dvm::testing

int main(int argc, char** argv) {
  using namespace dvm::testing;
  const unsigned first = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 0;
  const unsigned count = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 300;
  for (const dvm::Level& level : dvm::available_levels()) {
    check_level(*level.table, first, count);
    check_rows(*level.table);
  }
  std::printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
