// The host device: this machine's CPU seen as an NPU. A persistent thread is an AI core, a
// cache-sized arena is its local memory, an InstructionTable is its vector, cube and DMA units.
//
// `submit` starts the worker cores and returns; `finish` lets the caller work as core 0 until the
// stage is done. The first worker is the core on standby.
//
// Every core has a share of the tiles, neighbours of each other in every program, which it claims
// from one end, `claim` tiles at a time; a core that is done claims those of others from their
// other end, so a core that joins late finds taken what it was late for. The same share of each
// program, in successive stages, keeps what one kernel leaves in a core's caches there for the
// next, and turning round from stage to stage lets it begin with what was written last. A worker
// that has not joined when the tiles run out is not waited for; a stage therefore never costs the
// wake-up of a parked thread. A single claim is the caller's, and no worker hears of it: to be
// handed over it would take longer than to be done.
//
// Turns (turns.cpp) are one stage to the workers: they join once, and spin between the stages of
// the turns, which begin as soon as the claims of the one before are done. What a worker claims is
// of the stage at hand, whenever it looked. A stage of a single claim stays with the caller here,
// too. Where a worker is kept from running in the middle of a claim, the caller closes the stage to
// all of them, as at its end, and opens it anew.
//
// Loops are one stage, too, a claim each: a core sees all turns of one through.
//
// On which CPUs the threads run is said in placement.h. A forked child has no workers of its
// parent's devices, and makes devices of its own (runtime/device_pool.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "npu/device.h"
#include "npu/host/placement.h"

namespace dvm {

// Executes tiles [begin, end) on a core, which will probably go on with tile `next` (negative:
// unknown); a trap is left in core.trap and ends the call.
using TileRunner = void (*)(const Program& program, const InstructionTable& table, Core& core,
                            std::byte* const* buffers, int64_t begin, int64_t end, int64_t next);

struct HostDeviceOptions {
  // How long an idle core spins before it parks: a parked one takes about as long to come back. 0:
  // it parks at once, and so does a caller that waits for other cores.
  std::chrono::microseconds spin{1000};
  TileRunner runner = nullptr;  // null: the interpreter (vm/interpret.h)
};

class HostDevice final : public Device, private Standby {
 public:
  HostDevice(int cores, const InstructionTable& table, const Target& target,
             HostDeviceOptions options = {});
  ~HostDevice() override;

  const Target& target() const override { return target_; }
  const InstructionTable& table() const override { return table_; }
  int cores() const override { return static_cast<int>(cores_.size()); }

  void wake() override;
  void submit(std::span<const Task> tasks) override;
  // Works as core 0 until the stage is done.
  Trap finish() override;
  Trap run_turns(std::span<const Task> tasks, std::span<const size_t> ends, Turns& turns) override;
  Trap run_loops(std::span<const TurnLoop> loops) override;
  bool has_unclaimed_tiles() const override;
  void rest() override { resting_.store(true, std::memory_order_relaxed); }
  bool resting() const override { return resting_.load(std::memory_order_relaxed); }
  void record(std::span<CoreRecord> records) override { records_ = records; }
  void heed(Interruption* interruption) override { interruption_ = interruption; }
  Standby* standby() override { return this; }

 private:
  struct FreeArena {
    void operator()(std::byte* arena) const;
    std::align_val_t alignment{};
  };
  using Arena = std::unique_ptr<std::byte[], FreeArena>;

  // A stage as it is dealt out to the cores.
  struct Deal {
    std::vector<Task> tasks;
    int64_t claims = 0;            // of all tasks
    std::vector<int64_t> starts;   // of the share of each core, of each task: claims before it
    std::vector<int64_t> numbers;  // of the first claims there
    std::vector<uint64_t> shares;  // of each core: Share::left
    size_t first_task = 0;         // of the turn's

    void take(std::span<const Task> given);
    void share_out(size_t cores);
  };

  // All that a core needs to take a claim, in one line: each that comes from another core's cache
  // takes as long as the product of many a turn.
  struct alignas(kLinePair) Share {
    // The claims [low, high) of one core that nobody has taken yet, as low | high << 32; they are
    // numbered core by core, and there task by task.
    std::atomic<uint64_t> left{0};
    std::atomic<const Deal*> deal{nullptr};  // whose claims they are
    std::atomic<bool> upwards{false};        // the order in which the core claims them
    std::atomic<bool> inside{false};         // the core, a worker's, is in the stage

    bool is_empty() const {
      const uint64_t claims = left.load(std::memory_order_relaxed);
      return (claims & UINT32_MAX) >= claims >> 32;
    }
  };

  void post(Errand& errand) override;
  bool withdraw(Errand& errand) override;
  void recall(Errand& errand) override;
  bool has_errand() const override { return errand_.load(std::memory_order_relaxed) != nullptr; }
  bool waits() const override { return waiting_.load(std::memory_order_relaxed); }

  static Arena allocate_arena(size_t bytes);
  void stop();  // ends and joins the workers
  void drop_claims();
  void offer(const Deal& deal);
  static int64_t take(Share& share, bool from_low);  // -1: nothing is left
  int64_t work(Core& core, size_t shares);
  void run_alone(const Deal& deal);
  void open(bool wakes);
  void close();
  bool is_open() const { return (state_.load(std::memory_order_acquire) & kOpen) != 0; }
  void run_turn_stage(const Deal& deal, bool shared);
  void await_claims(int64_t done);
  void work_in_turns(Core& core);
  void work_at_loops(Core& core);
  void run_loop(Core& core, const TurnLoop& loop, size_t first_task);
  void worker_loop(Core& core, bool runs_errands);
  uint32_t await_stage(uint32_t seen, bool runs_errands);
  void help_workers();
  void sleep_until_left();
  void run_errand();
  void run_claim(Core& core, CoreRecord* record, const Task& task, int64_t begin, int64_t tiles,
                 int64_t next, bool goes_on);
  // Makes what instructions stored around the caches visible to other cores; see kStream.
  static void finish_streams();
  void report(const Core& core, size_t task);
  size_t index_of(const Core& core) const;

  const InstructionTable& table_;
  const Target target_;
  const HostDeviceOptions options_;
  std::vector<Arena> arenas_;
  std::vector<std::unique_ptr<Core>> cores_;

  // Written while no worker is inside.
  Deal stage_;                     // that was submitted
  std::vector<Deal> turn_stages_;  // beyond those of the turns at hand, capacity
  bool in_turns_ = false;
  size_t dealt_to_ = 0;              // cores, from the first one on
  std::span<const TurnLoop> loops_;  // empty: there are none
  std::vector<Share> shares_;
  std::span<CoreRecord> records_;
  Interruption* interruption_ = nullptr;

  // The caller's.
  alignas(kLinePair) Trap trap_;
  bool alone_ = false;       // the stage is a single claim
  bool upwards_ = false;     // the order in which cores claim their own shares
  int64_t handed_over_ = 0;  // claims of turns that workers have taken

  alignas(kLinePair) std::atomic<int64_t> done_{0};      // of those
  alignas(kLinePair) std::atomic<size_t> next_loop_{0};  // that nobody has taken
  std::atomic<bool> trapped_{false};
  std::atomic<bool> dropped_{false};  // claims, by a trap or an interruption
  // generation:20 | open:1 | workers inside:11. A worker joins by incrementing an open state.
  static constexpr uint32_t kOpen = 1u << 11, kInside = kOpen - 1, kGeneration = kOpen << 1;
  static uint32_t generation_of(uint32_t state) { return state & ~(kOpen | kInside); }
  alignas(kLinePair) std::atomic<uint32_t> state_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> resting_{false};  // until the next submit; who leaves wakes those that wait
  std::atomic<Errand*> errand_{nullptr};
  std::atomic<bool> waiting_{false};  // the worker that runs errands is awake, and at no stage
  std::mutex errand_mutex_;           // held by the worker that is at one
  std::unique_ptr<std::vector<std::thread>> workers_;
  Placement placement_;
  const uint32_t process_;  // in which the workers run
};

// Cores this process may use: by its CPU affinity, and by the quotas of its control groups.
int available_cores();

}  // namespace dvm
