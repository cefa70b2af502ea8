// A part that is not at hand, for the values that it computes: programs for its target run on this
// machine, in order, or as its queues might.
//
// Every core has a static row of shares of a stage's programs (shares.h), and its own local
// memories, whose contents live on from stage to stage. In order, the cores of a pair take turns,
// block by block. Shares run one after the other on the calling thread, so
// nothing depends on how many cores this machine has.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "npu/device.h"
#include "npu/simulator/flag_audit.h"
#include "npu/simulator/part.h"
#include "npu/simulator/queues.h"
#include "npu/simulator/stage_timing.h"

namespace dvm {

class ValueDevice final : public Device {
 public:
  // `base` has what the instructions of all devices compute, `ledger` is for what is audited.
  ValueDevice(const Target& target, const NpuPart& part, const InstructionTable& base,
              QueueRun queues, std::shared_ptr<FlagLedger> ledger);

  const Target& target() const override { return target_; }
  const InstructionTable& table() const override { return table_; }
  int cores() const override { return static_cast<int>(target_.cores); }

  void wake() override {}
  // Runs the stage at once.
  void submit(std::span<const Task> tasks) override;
  Trap finish() override { return trap_; }
  bool has_unclaimed_tiles() const override { return false; }
  void rest() override {}
  bool resting() const override { return false; }
  void record(std::span<CoreRecord> records) override { records_ = records; }
  void heed(Interruption* interruption) override { interruption_ = interruption; }
  Standby* standby() override { return nullptr; }

 private:
  void run_share(std::span<const Task> tasks, const Share& share, int64_t of_core);
  void run(std::span<const QueuedCore> cores);
  void audit(std::span<const Task> programs);
  Core core_of(size_t place);

  const Target target_;
  const NpuPart part_;
  const InstructionTable table_;
  const QueueRun queues_;
  const std::vector<QueueOrder> orders_;
  size_t turn_ = 0;
  Trap trap_;
  std::vector<std::vector<std::byte>> local_;  // of a core, or of a pair's
  std::vector<std::byte> scratch_;
  const std::shared_ptr<FlagLedger> ledger_;
  std::span<CoreRecord> records_;
  Interruption* interruption_ = nullptr;
};

}  // namespace dvm
