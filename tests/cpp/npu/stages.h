// Stages of tasks whose runner is the test's own: it counts the runs of every tile, in any core.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "npu/host/device.h"
#include "npu/host/levels.h"

namespace dvm::test {

// What the runner does is told by the task's buffer table: slot 0 holds the record of the task.
struct Record {
  std::vector<std::atomic<int>> runs;
  std::vector<int64_t> plain;  // written without atomics: ordered by the stage alone
  int64_t trap_at = -1;
  int64_t claim = 1;
  std::atomic<bool> misaligned{false};
  explicit Record(int64_t tiles)
      : runs(static_cast<size_t>(tiles)), plain(static_cast<size_t>(tiles)) {}
};

inline void run_record(const Program&, const InstructionTable&, Core& core,
                       std::byte* const* buffers, int64_t begin, int64_t end, int64_t next) {
  Record& record = *reinterpret_cast<Record*>(buffers[0]);
  if (begin % record.claim != 0) record.misaligned = true;
  const auto tiles = static_cast<int64_t>(record.plain.size());
  if (next >= tiles || (next >= 0 && next != begin - record.claim && next != end)) {
    record.misaligned = true;
  }
  core.local[0] = std::byte{1};
  for (int64_t tile = begin; tile < end; tile++) {
    if (tile == record.trap_at) {
      core.trap.kind = TrapKind::index_out_of_range;
      core.trap.tile = tile;
      return;
    }
    record.runs[static_cast<size_t>(tile)].fetch_add(1, std::memory_order_relaxed);
    record.plain[static_cast<size_t>(tile)]++;
  }
}

inline HostDevice make_device(int cores, std::chrono::microseconds spin) {
  Target target;
  target.local_bytes = 1 << 16;
  return HostDevice(cores, best_table(), target, {spin, &run_record});
}

struct Stage {
  std::vector<std::unique_ptr<Record>> records;
  std::vector<std::byte*> buffers;
  std::vector<Task> tasks;

  void add(int64_t tiles, int64_t claim, const Program* program) {
    records.push_back(std::make_unique<Record>(tiles));
    records.back()->claim = claim;
    buffers.reserve(16);
    buffers.push_back(reinterpret_cast<std::byte*>(records.back().get()));
    tasks.push_back({program, &buffers.back(), tiles, claim});
  }
};

// The runner never looks at the program.
inline const Program* some_program() {
  alignas(16) static std::byte nothing[256];
  return reinterpret_cast<const Program*>(nothing);
}

}  // namespace dvm::test
