#include "npu/simulator/value_device.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "npu/simulator/cube_values.h"
#include "vm/interpret.h"
#include "vm/program.h"

namespace dvm {
namespace {

constexpr size_t kAlignment = 64;

std::byte* aligned(std::vector<std::byte>& memory) {
  const auto at = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kAlignment - at % kAlignment) % kAlignment;
}

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

ValueDevice::ValueDevice(const Target& target, const InstructionTable& base, QueueRun queues)
    : target_(target),
      table_(with_cube_memories(base)),
      queues_(queues),
      orders_(adversarial_orders()),
      local_(static_cast<size_t>(target.memory_end()) + kAlignment),
      scratch_(static_cast<size_t>(kScratchBytes) + kAlignment) {}

void ValueDevice::submit(std::span<const Task> tasks) {
  trap_ = {};
  for (size_t t = 0; t < tasks.size(); ++t) {
    const int64_t share = std::max<int64_t>(tasks[t].program->header().tiles_per_core, 1);
    for (int64_t begin = 0; begin < tasks[t].tiles; begin += share) {
      if (interruption_ != nullptr && interruption_->requested()) return;
      run_share(tasks, t, begin, std::min(begin + share, tasks[t].tiles));
      if (trap_.kind != TrapKind::none) return;
    }
  }
}

void ValueDevice::run_share(std::span<const Task> tasks, size_t number, int64_t begin,
                            int64_t end) {
  const Task& task = tasks[number];
  Core core;
  core.local = aligned(local_);
  core.local_bytes = static_cast<size_t>(target_.memory_end());
  core.scratch = aligned(scratch_);
  const auto of_core = static_cast<size_t>(begin / (end - begin)) % static_cast<size_t>(cores());
  CoreRecord* const record = of_core < records_.size() ? &records_[of_core] : nullptr;
  const int64_t start = record != nullptr ? now_ns() : 0;
  if (record != nullptr) core.times = &record->times[task.tag];
  run(task, core, begin, end);
  if (record != nullptr) record->spans.push_back({task.tag, start, now_ns(), end - begin});
  if (core.trap.kind == TrapKind::none) return;
  trap_ = core.trap;
  trap_.core = static_cast<int32_t>(of_core);
  trap_.task = static_cast<uint32_t>(number);
}

void ValueDevice::run(const Task& task, Core& core, int64_t begin, int64_t end) {
  if (queues_ == QueueRun::in_order) {
    return run_tiles(*task.program, table_, core, task.buffers, begin, end);
  }
  core.times = nullptr;
  const QueueOrder& order = orders_[turn_++ % orders_.size()];
  if (!run_queues(*task.program, table_, core, task.buffers, begin, end, order)) {
    throw std::logic_error("the queues of a core wait for each other");
  }
}

}  // namespace dvm
