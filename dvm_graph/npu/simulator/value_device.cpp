#include "npu/simulator/value_device.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "npu/simulator/cube_values.h"
#include "npu/simulator/half_values.h"
#include "npu/simulator/shares.h"
#include "vm/interpret.h"
#include "vm/pair.h"
#include "vm/program.h"

namespace dvm {
namespace {

std::byte* aligned(std::vector<std::byte>& memory) {
  const auto at = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kAlignment - at % kAlignment) % kAlignment;
}

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

ValueDevice::ValueDevice(const Target& target, const NpuPart& part, const InstructionTable& base,
                         QueueRun queues, std::shared_ptr<FlagLedger> ledger)
    : target_(target),
      part_(part),
      table_(with_halves(with_cube_memories(base))),
      queues_(queues),
      orders_(adversarial_orders()),
      local_(1 + static_cast<size_t>(lanes_of(target)),
             std::vector<std::byte>(static_cast<size_t>(target.memory_end()) + kAlignment)),
      scratch_(static_cast<size_t>(kScratchBytes) + kAlignment),
      ledger_(std::move(ledger)) {}

void ValueDevice::submit(std::span<const Task> tasks) {
  trap_ = {};
  std::vector<const Program*> programs;
  for (size_t t = 0; t < tasks.size(); ++t) {
    programs.push_back(tasks[t].program);
    const ProgramHeader& header = programs[t]->header();
    if (queues_ == QueueRun::audited && !header.beside_cube())
      audit(tasks.subspan(t, header.programs()));
  }
  const std::vector<CoreShares> cores = deal_tiles(programs, part_);
  for (size_t core = 0; core < cores.size(); ++core) {
    if (interruption_ != nullptr && interruption_->requested()) return;
    for (const Share& share : cores[core]) {
      run_share(tasks, share, static_cast<int64_t>(core));
      if (trap_.kind != TrapKind::none) return;
    }
  }
}

void ValueDevice::audit(std::span<const Task> programs) {
  if (!ledger_->opens(*programs[0].program)) return;
  std::vector<Core> cores;
  for (size_t place = 0; place < local_.size(); ++place) cores.push_back(core_of(place));
  ledger_->add(audit_flags(programs, target_, table_, cores));
}

Core ValueDevice::core_of(size_t place) {
  Core core;
  core.local = aligned(local_[place]);
  core.local_bytes = static_cast<size_t>(target_.memory_end());
  core.scratch = aligned(scratch_);
  return core;
}

void ValueDevice::run_share(std::span<const Task> tasks, const Share& share, int64_t of_core) {
  const size_t number = share.program;
  const Program& program = *tasks[number].program;
  const auto lanes = static_cast<size_t>(program.header().lanes());
  std::vector<Core> cores;
  for (size_t place = 0; place <= lanes; ++place) cores.push_back(core_of(place));
  std::vector<QueuedCore> queued;
  for (size_t place = 0; place <= lanes; ++place) {
    const Task& task = tasks[number + half_of(program.header(), place)];
    queued.push_back({task.program, &cores[place], task.buffers, share.groups, of_core,
                      static_cast<int64_t>(place) - 1});
  }
  const auto place = static_cast<size_t>(of_core);
  CoreRecord* const record = place < records_.size() ? &records_[place] : nullptr;
  const uint32_t tag = tasks[number].tag;
  const int64_t start = record != nullptr ? now_ns() : 0;
  if (record != nullptr) {
    for (Core& core : cores) core.times = &record->times[tag];
  }
  run(queued);
  if (record != nullptr) {
    const int64_t tiles = ShareWalk(program.header(), share.groups).tiles();
    record->spans.push_back({tag, start, now_ns(), tiles});
  }
  for (size_t each = 0; each < cores.size(); ++each) {
    if (cores[each].trap.kind == TrapKind::none) continue;
    trap_ = cores[each].trap;
    trap_.core = static_cast<int32_t>(of_core);
    trap_.task = static_cast<uint32_t>(number + half_of(program.header(), each));
    return;
  }
}

void ValueDevice::run(std::span<const QueuedCore> cores) {
  if (queues_ == QueueRun::in_order) return run_in_order(cores, table_);
  for (const QueuedCore& each : cores) each.core->times = nullptr;
  // Another core of a pair goes first each time.
  std::vector<QueuedCore> turned(cores.begin(), cores.end());
  std::ranges::rotate(turned, turned.begin() + static_cast<std::ptrdiff_t>(turn_ % cores.size()));
  const QueueOrder& order = orders_[turn_++ % orders_.size()];
  if (!run_queues(turned, table_, order)) {
    throw std::logic_error("the queues of a core wait for each other");
  }
}

}  // namespace dvm
