#include "bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "../targets.h"
#include "common_kernels.h"
#include "vm/disassemble.h"

namespace dvm::testing {
namespace {

constexpr int kRepetitions = 2000;

Target host_like() {
  Target target = plain_target();
  target.cores = 2;
  target.local_bytes = 768 << 10;
  target.vector_tile_bytes = 32 << 10;
  target.matmul_rows = 126;
  target.matmul_k_block = 768;
  target.costs.tile_start = 512 * kVectorElement;
  return target;
}

void measure(const char* shape, const PlanBuilder& b) {
  CompilerScratch scratch;
  CompiledKernel kernel;
  const Target target = host_like();
  double total = 0, worst = 0;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    compile_kernel(b.plan, b.dims.data(), b.values.data(), target, scratch, kernel);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    total += took.count();
    worst = std::max(worst, took.count());
  }
  const ProgramHeader& header = kernel.programs[0].header();
  std::printf("%-18s %-18s mean %6.2f us  max %7.2f us  tiles %lld  words %lld\n",
              b.plan.name.c_str(), shape, total / kRepetitions, worst,
              static_cast<long long>(header.tiles), static_cast<long long>(header.code_words));
}

void show(const PlanBuilder& b) {
  CompilerScratch scratch;
  CompiledKernel kernel;
  compile_kernel(b.plan, b.dims.data(), b.values.data(), host_like(), scratch, kernel);
  for (uint32_t p = 0; p < kernel.program_count; ++p) {
    std::printf("%s: %s\n", b.plan.name.c_str(), disassemble(kernel.programs[p]).c_str());
  }
}

}  // namespace

int run_show() {
  show(layer_norm(512, 768));
  show(softmax(1536, 128));
  show(gelu(393216));
  show(exp_and_sum(2048, 32001));
  show(matmul_bias_gelu(512, 3072, 768, 32));
  return 0;
}

int run_bench() {
  measure("[512, 768]", layer_norm(512, 768));
  measure("[1536, 128]", softmax(1536, 128));
  measure("[393216]", gelu(393216));
  measure("[2048, 32001]", exp_and_sum(2048, 32001));
  measure("[512, 3072, 768]", matmul_bias_gelu(512, 3072, 768, 32));
  return 0;
}

}  // namespace dvm::testing
