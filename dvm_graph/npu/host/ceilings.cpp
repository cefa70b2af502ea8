#include "npu/host/ceilings.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "npu/host/levels.h"

namespace dvm {
namespace {

constexpr int kTries = 5;
constexpr int64_t kSteps = 400'000;  // some milliseconds
constexpr size_t kAllBuffers = size_t{256} << 20;
constexpr size_t kSmallestBuffer = size_t{4} << 20;

// Seconds of the fastest try, from a common start until the last of the threads is done.
template <class Work>
double fastest(int cores, const Work& work) {
  using Clock = std::chrono::steady_clock;
  std::barrier together(cores);
  double best = 1e9;
  const auto run = [&](int core) {
    for (int attempt = 0; attempt < kTries; attempt++) {
      together.arrive_and_wait();
      const Clock::time_point start = Clock::now();
      work(core);
      together.arrive_and_wait();
      const std::chrono::duration<double> elapsed = Clock::now() - start;
      if (core == 0) best = std::min(best, elapsed.count());
    }
  };
  std::vector<std::jthread> threads;
  for (int core = 1; core < cores; core++) threads.emplace_back(run, core);
  run(0);
  return best;
}

}  // namespace

Ceilings measure_ceilings(int cores, const InstructionTable& table) {
  const auto levels = available_levels();
  const auto level = std::ranges::find(levels, &table, &Level::table);
  std::vector<int64_t> operations(static_cast<size_t>(cores));
  const double multiplying = fastest(cores, [&](int core) {
    operations[static_cast<size_t>(core)] = level->multiply_add(kSteps);
  });

  const size_t bytes = std::max(kAllBuffers / (2 * static_cast<size_t>(cores)), kSmallestBuffer);
  std::vector<std::unique_ptr<char[]>> buffers;
  for (int i = 0; i < 2 * cores; i++) buffers.push_back(std::make_unique<char[]>(bytes));
  const double copying = fastest(cores, [&](int core) {
    const auto first = static_cast<size_t>(2 * core);
    std::memcpy(buffers[first].get(), buffers[first + 1].get(), bytes);
  });
  return {static_cast<double>(operations[0] * cores) / multiplying,
          static_cast<double>(2 * bytes) * cores / copying};
}

}  // namespace dvm
