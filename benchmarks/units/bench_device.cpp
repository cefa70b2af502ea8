// The host device: what a stage costs on top of its tiles, and which tile size suits the caches.
//
// The sweep runs a chain of element-wise instructions over a long row, tile by tile: a load from
// and a store to memory with local temporaries in between, as a fused kernel does. The preferred
// live bytes of host_target() come from it.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "measure.h"
#include "npu/host/device.h"
#include "npu/host/levels.h"
#include "vm/interpret.h"

namespace dvm::bench {
namespace {

// A runner in place of the interpreter, for stages without content.
void run_nothing(const Program&, const InstructionTable&, Core&, std::byte* const*, int64_t,
                 int64_t) {}

double stage_seconds(int cores, int64_t tiles) {
  constexpr int kStages = 20000;
  Target target;
  target.local_bytes = 4096;
  HostDevice device(cores, best_table(), target, {std::chrono::microseconds(500), &run_nothing});
  alignas(16) static std::byte nothing[256];
  const Task task{reinterpret_cast<const Program*>(nothing), nullptr, tiles, 1};
  std::vector<double> times;
  for (int round = 0; round < 9; round++) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kStages; i++) device.run({&task, 1});
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return *std::min_element(times.begin(), times.end()) / kStages;
}

struct Step {
  Family family;
  int out, a, b;  // -1: none; 0: memory in, 1: memory out, 2...: temporaries
};
// y = sigmoid(x) * x + x * x - max(x, x * x): 4 live tiles.
constexpr Step kChain[] = {
    {Family::v_sigmoid, 2, 0, -1}, {Family::v_mul, 2, 2, 0}, {Family::v_mul, 3, 0, 0},
    {Family::v_add, 2, 2, 3},      {Family::v_max, 3, 3, 0}, {Family::v_sub, 1, 2, 3},
};

double chain_seconds(const InstructionTable& table, int64_t tile, int64_t total) {
  std::vector<float> in(static_cast<size_t>(total), 0.5f), out(in.size());
  std::vector<float> temporaries(static_cast<size_t>(2 * tile) + 64);
  Core core;
  for (int32_t& extent : core.extents) extent = 1;
  core.extents[1] = static_cast<int32_t>(tile);
  std::vector<std::vector<uint64_t>> body;
  for (const Step& step : kChain) {
    std::vector<uint64_t> words(1);
    for (const int operand : {step.out, step.a, step.b}) {
      if (operand < 0) continue;
      words.push_back((uint64_t{1} << 32) | (uint64_t{1} << kSpaceShift) |
                      static_cast<uint64_t>(operand));
      words.push_back(0);
    }
    const Head head{
        opcode_of(step.family, DType::f32), static_cast<uint8_t>(words.size()), 0, 0, 0, 0, 1};
    std::memcpy(words.data(), &head, sizeof head);
    body.push_back(words);
  }
  core.extents[0] = 1;
  const auto pass = [&] {
    for (int64_t at = 0; at < total; at += tile) {
      core.pointers[0] = reinterpret_cast<std::byte*>(in.data() + at);
      core.pointers[1] = reinterpret_cast<std::byte*>(out.data() + at);
      core.pointers[2] = reinterpret_cast<std::byte*>(temporaries.data());
      core.pointers[3] = reinterpret_cast<std::byte*>(temporaries.data() + tile);
      for (const auto& words : body) table.handlers[words[0] & 0xffff](core, words.data());
    }
  };
  pass();
  std::vector<double> times;
  for (int round = 0; round < 7; round++) times.push_back(seconds_of(pass, 2));
  return median(times);
}

}  // namespace
}  // namespace dvm::bench

int main() {
  using namespace dvm::bench;
  for (int cores = 1; cores <= dvm::available_cores(); cores++) {
    for (const int64_t tiles : {1, 2, 64}) {
      std::printf("%d cores, stage of %2ld empty tiles: %6.0f ns\n", cores,
                  static_cast<long>(tiles), stage_seconds(cores, tiles) * 1e9);
    }
  }
  constexpr int64_t kTotal = 1 << 22;
  for (int64_t tile = 256; tile <= (1 << 17); tile *= 2) {
    std::printf("tile of %6ld elements, %5ld KiB live: %.3f ns per element\n",
                static_cast<long>(tile), static_cast<long>(tile * 4 * 4 / 1024),
                chain_seconds(dvm::best_table(), tile, kTotal) / kTotal * 1e9);
  }
}
