// Compiling takes nothing from the heap once kernels as large were compiled: neither for shapes
// seen before nor for smaller ones never seen.
#include "../counting_new.h"
#include "../targets.h"
#include "check.h"
#include "common_kernels.h"
#include "vm/verify.h"

namespace dvm::testing {
namespace {

Target target_of(int cores, int64_t local_bytes) {
  Target target = plain_target();
  target.cores = cores;
  target.local_bytes = local_bytes;
  target.vector_tile_bytes = local_bytes / 4;
  target.matmul_rows = 126;
  target.matmul_k_block = 768;
  target.costs.tile_start = 512 * kVectorElement;
  return target;
}

std::vector<PlanBuilder> kernels_at(int64_t rows) {
  std::vector<PlanBuilder> kernels;
  kernels.push_back(layer_norm(rows, 768));
  kernels.push_back(softmax(12 * rows, rows));
  kernels.push_back(gelu(3072 * rows));
  kernels.push_back(exp_and_sum(rows, 32001));  // its sums are split over cores where rows are few
  kernels.push_back(matmul_bias_gelu(rows, 3072, 768, 32));
  return kernels;
}

struct Compiler {
  CompilerScratch scratch;
  CompiledKernel kernels[5];

  void compile(const std::vector<PlanBuilder>& builders, const Target& target) {
    for (size_t i = 0; i < builders.size(); i++) {
      const PlanBuilder& b = builders[i];
      compile_kernel(b.plan, b.dims.data(), b.values.data(), target, scratch, kernels[i]);
      for (uint32_t p = 0; p < kernels[i].program_count; p++) {
        const std::string complaint = verify(kernels[i].programs[p], b.values.data(),
                                             b.values.size(), kernels[i].workspace_bytes, target);
        CHECK(complaint.empty(), "%s", complaint.c_str());
      }
    }
  }
};

void check_steady_state(const Target& target) {
  Compiler compiler;
  std::vector<std::vector<PlanBuilder>> shapes;
  for (const int64_t rows : {1, 2, 13, 77, 127, 128, 129, 512, 1000}) {
    shapes.push_back(kernels_at(rows));
  }
  for (const auto& shape : shapes) compiler.compile(shape, target);
  const int64_t before = allocations;
  for (int round = 0; round < 3; round++) {
    for (size_t i = shapes.size(); i-- > 0;) compiler.compile(shapes[i], target);
  }
  const auto taken = static_cast<long>(allocations - before);
  CHECK(taken == 0, "%ld allocations with %d cores", taken, static_cast<int>(target.cores));
}

}  // namespace
}  // namespace dvm::testing

int main() {
  using namespace dvm::testing;
  const int64_t before = allocations;
  ::operator delete(::operator new(1));  // unlike a new expression's, calls that have to be made
  CHECK(allocations == before + 1, "allocations are counted");
  for (const int cores : {1, 2, 16}) {
    for (const int64_t local_bytes : {int64_t{16} << 10, int64_t{768} << 10}) {
      check_steady_state(target_of(cores, local_bytes));
    }
  }
  std::printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
