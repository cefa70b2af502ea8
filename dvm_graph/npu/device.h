// What the runtime asks of a device: to run stages of programs on its cores.
//
// A *stage* is independent programs that share the cores (spatial stacking), one at a time.
// `submit` starts it and returns; `finish` sees it through. In between the caller may do other work
// (the launcher compiles the next kernels). What else the machine lends, a core that runs the
// compiler while it waits, a device may have or not.
//
// Not thread-safe: one thread submits and finishes. Separate devices are independent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "vm/core.h"
#include "vm/instruction_times.h"
#include "vm/program.h"
#include "vm/target.h"

namespace dvm {

struct Task {
  const Program* program;
  std::byte* const* buffers;  // must outlive finish()
  int64_t tiles;
  int64_t claim;     // tiles taken at a time, at least 1
  uint32_t tag = 0;  // what a profile files its work under
};

// A core takes at least this many claims of a large program, for balance.
inline constexpr int64_t kClaimsPerCore = 64;

inline Task task_of(const Program& program, std::byte* const* buffers, int cores, uint32_t tag) {
  const ProgramHeader& header = program.header();
  const int64_t least = std::max<int64_t>(header.preferred_claim, 1);
  const int64_t claim =
      least * std::max<int64_t>(header.tiles / (least * cores * kClaimsPerCore), 1);
  return {&program, buffers, header.tiles, claim, tag};
}

// Claims of one task that a core took one after the other.
struct CoreSpan {
  uint32_t tag = 0;
  int64_t start_ns = 0, end_ns = 0;  // of the steady clock
  int64_t tiles = 0;
};

// What a core did while somebody recorded it.
struct alignas(64) CoreRecord {
  std::vector<CoreSpan> spans;          // in the order of time
  std::vector<InstructionTimes> times;  // by tag
  bool lost = false;                    // spans are missing: memory ran out
};

// Something that a core may do while it waits.
class Errand {
 public:
  virtual void run() noexcept = 0;

 protected:
  ~Errand() = default;
};

// A core that runs errands while it waits for a stage: always the same one, so that an errand finds
// what earlier ones left in its caches. Any thread may ask.
class Standby {
 public:
  // Has the errand run once, if the core comes to wait. One that was posted earlier and not begun
  // is forgotten.
  virtual void post(Errand& errand) = 0;
  // True if the errand was not begun, and now will not be.
  virtual bool withdraw(Errand& errand) = 0;
  // Afterwards the core is not at the errand, and will not be.
  virtual void recall(Errand& errand) = 0;
  // An errand is posted that is not begun.
  virtual bool has_errand() const = 0;
  // The core is awake, and at no stage.
  virtual bool waits() const = 0;

 protected:
  ~Standby() = default;
};

// Asked by the calling thread between its claims, and so every few microseconds to milliseconds.
class Interruption {
 public:
  // Whether to leave the tiles that nobody has claimed yet.
  virtual bool requested() noexcept = 0;

 protected:
  ~Interruption() = default;
};

// Stages that are gone through again and again: what lies between the turns.
class Turns {
 public:
  // Called by the thread that submits, while no core is at tiles, before each turn: buffers may be
  // exchanged for others. False: there are no more turns.
  virtual bool begin() noexcept = 0;

 protected:
  ~Turns() = default;
};

// Tasks that go through their turns on one core, one after the other, and need nothing of the other
// cores. Turns::begin is called by the core.
struct TurnLoop {
  std::span<const Task> tasks;
  Turns* turns;
};

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual const Target& target() const = 0;
  // What its instructions compute.
  virtual const InstructionTable& table() const = 0;
  virtual int cores() const = 0;

  // A stage is about to be submitted: whoever sleeps may come back.
  virtual void wake() = 0;
  // Starts one stage. Every submit must be followed by a finish before the next submit.
  virtual void submit(std::span<const Task> tasks) = 0;
  // Sees the stage through; the first trap, or kind none.
  virtual Trap finish() = 0;
  Trap run(std::span<const Task> tasks) {
    submit(tasks);
    return finish();
  }
  // Turn by turn, the stages [0, ends[0]), [ends[0], ends[1]), ... of the tasks, which start as
  // soon as the one before is done; the first trap, which ends the turns, or kind none. Once memory
  // was taken for stages as large, none is.
  virtual Trap run_turns(std::span<const Task> tasks, std::span<const size_t> ends, Turns& turns) {
    while (turns.begin()) {
      for (size_t first = 0; const size_t end : ends) {
        const Trap trap = run(tasks.subspan(first, end - first));
        if (trap.kind != TrapKind::none) return trap.behind(first);
        first = end;
      }
    }
    return {};
  }
  // Loops that know nothing of each other, each to its end; the first trap, which ends all of them,
  // or kind none. It counts the tasks of loops one after the other.
  virtual Trap run_loops(std::span<const TurnLoop> loops) {
    size_t before = 0;
    for (const TurnLoop& loop : loops) {
      while (loop.turns->begin()) {
        for (size_t task = 0; task < loop.tasks.size(); task++) {
          const Trap trap = run(loop.tasks.subspan(task, 1));
          if (trap.kind != TrapKind::none) return trap.behind(before + task);
        }
      }
      before += loop.tasks.size();
    }
    return {};
  }
  // Between submit and finish: the caller has time for other work still.
  virtual bool has_unclaimed_tiles() const = 0;
  // Idle cores are to leave the machine to another library until the next wake or submit.
  virtual void rest() = 0;
  virtual bool resting() const = 0;

  // Records what every core does from now on, an entry each, in programs whose tags are below the
  // size of `times`; an empty span ends it. Not between submit and finish.
  virtual void record(std::span<CoreRecord> records) = 0;
  // Who may interrupt the stages from now on; null: nobody. finish() does not tell: ask it again.
  virtual void heed(Interruption* interruption) = 0;

  // Null: it has none.
  virtual Standby* standby() = 0;
};

// A stage that is seen through, however the launch ends.
class OpenStage {
 public:
  OpenStage(Device& device, std::span<const Task> tasks) : device_(device) { device.submit(tasks); }
  OpenStage(const OpenStage&) = delete;
  OpenStage& operator=(const OpenStage&) = delete;
  ~OpenStage() { device_.finish(); }

 private:
  Device& device_;
};

}  // namespace dvm
