// Compiles kernels and launches them: while one launch runs, a waiting core (ahead_compiler.h) or
// the caller's thread compiles the next.
//
// A kernel is compiled once for all calls of it (kernel_programs.h). A call whose guard is 0 or
// whose kernel does not fit the device is replaced by its fallback calls. Fallback intermediates
// and kernel workspaces lie in a scratch arena that is laid out per launch.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/ahead_compiler.h"
#include "runtime/device_pool.h"
#include "runtime/growing_states.h"
#include "runtime/kernel_programs.h"
#include "runtime/memory.h"
#include "runtime/memory_plan.h"
#include "runtime/model.h"
#include "runtime/profile.h"
#include "runtime/rehearsal.h"
#include "runtime/schedule.h"
#include "runtime/statistics.h"

namespace dvm {

// What somebody wants of one run.
struct RunRequest {
  bool profile = false;                  // record where the time goes, in the statistics
  Interruption* interruption = nullptr;  // asked between tiles and between steps
  void* context = nullptr;               // for the vendor library
  // Symbols with their values, which whoever runs the model as a body knows; inputs bind the
  // others.
  std::span<const std::pair<uint32_t, int64_t>> symbols = {};
  std::span<GrowingPlace> growing = {};  // where outputs may lie that inputs are the beginning of
  std::span<const char> spent = {};      // by input: a caller that holds it reads it no more
};

// Throws CancelledError where somebody interrupts the run.
void refuse_interrupted(const RunRequest& request);

// What launches of one run share.
struct RunContext {
  const Dims& dims;
  const ValueInfo* values;  // by value
  std::byte** buffers;      // by value; behind kReservedBuffers entries
  RunStatistics& statistics;
  Profiler* profiler;  // null where nobody asks
  const RunRequest& request;
};

// How many cores of the device programs are made for.
enum class Cores : uint8_t { all, one };

class Launcher {
 public:
  // `calls`: by call, whether it is launched; empty: all are.
  Launcher(const Model& model, const Schedule& schedule, SharedDevice& device, Cores cores,
           std::span<const char> calls);

  // What is prepared of these steps is out of date.
  void invalidate(uint32_t first_step, uint32_t end_step);

  // Whether a call does not run, in the runs to come.
  void leave_out(uint32_t call, bool left_out);

  // The programs of all kernels are to be made anew; steps have to be invalidated, too.
  void forget();

  // A run begins. Parked cores take longer to come back than a small kernel runs, so they are
  // called before anything else is done, unless the last run had no work for them.
  void begin_run();

  // Runs consecutive steps; writes of dims among them are not its business. Throws ExecutionError
  // for a trap, CompileError, OutOfMemoryError, CancelledError.
  void run(uint32_t first_step, uint32_t end_step, const RunContext& run);

  // All steps, none of which is an outer call, turn by turn in one launch, after a run at the same
  // dims. Before each turn `turns` may change where the `moving` values lie, in run.buffers. Throws
  // as run does; an interruption ends the turns and is for the caller to look at.
  void run_turns(std::span<const uint32_t> moving, Turns& turns, const RunContext& run);

  // What one core does by itself, in as many turns as there are.
  struct Loop {
    Launcher* launcher;  // of programs for one core
    std::span<const uint32_t> moving;
    Turns* turns;
    RunContext run;
  };
  // As run_turns, of loops that know nothing of each other, in one launch.
  static void run_loops(std::span<const Loop> loops);

  // Lets the scratch arena shrink to what runs need now.
  void end_run();
  int64_t scratch_bytes() const { return scratch_.capacity(); }

 private:
  // A compiled stage of a call; those of equal position run side by side.
  struct Launch {
    uint32_t call, stage;
    int32_t position;
  };
  struct Scratch {
    int32_t value;  // -1: the workspace of `call`
    uint32_t call;
    int64_t offset;
  };
  struct Prepared {
    bool ready = false;
    std::vector<Launch> launches;  // by position
    std::vector<Scratch> scratch;
    int64_t scratch_bytes = 0;
    int32_t fallbacks = 0;
  };
  class Ahead;
  class TurnLaunch;
  // An entry in the buffers of a call, the value whose place it holds, and bytes of that before it.
  struct Moving {
    std::byte** entry;
    uint32_t value;
    int64_t begin;
  };

  bool is_ready(uint32_t step) const;
  bool compiles(uint32_t step, const RunContext& run) const;
  bool compiles_call(uint32_t call, const RunContext& run) const;
  void prepare(uint32_t step, const RunContext& run);
  void resolve(uint32_t call, const RunContext& run, Prepared& out);
  bool take_programs(uint32_t call, const RunContext& run, Prepared& out);
  void compile(uint32_t call, const RunContext& run);
  void count_compiled(uint32_t call, int64_t start_ns, int64_t elapsed_ns,
                      const RunContext& run) noexcept;
  void end_ahead(const RunContext& run) noexcept;
  void request_scratch(uint32_t call, int32_t first, const RunContext& run, Prepared& out);
  void place_scratch(Prepared& out);
  void bind_buffers(const Prepared& prepared, const RunContext& run);
  void prepare_ahead(uint32_t end_step, const RunContext& run);
  void launch(uint32_t step, uint32_t end_step, const RunContext& run);
  void run_alone();
  size_t collect_tasks(const Prepared& prepared, size_t first, const RunContext& run);
  void profile_launches(const Prepared& prepared, int64_t times, const RunContext& run);
  void end_launch(uint32_t step, uint32_t end_step, const RunContext& run);
  void finish(const RunContext& run);
  void throw_if_trapped(const Trap& trap) const;
  static bool is_interrupted(const RunContext& run);
  void collect_turn(const RunContext& run);
  void find_moving(std::span<const uint32_t> values, const RunContext& run);

  const BoundKernel& bound(uint32_t call) const { return programs_.bound(call); }
  // The buffers of a call, by argument; behind kReservedBuffers entries.
  std::byte** buffers_of(uint32_t call) { return buffers_.data() + first_buffer_[call]; }

  const Model& model_;
  const Schedule& schedule_;
  const std::span<const char> launched_;  // by call; empty: all are
  std::vector<char> left_out_;            // by call
  const bool alone_;                      // one core does all
  SharedDevice& device_;
  const Target target_;
  // Of the caller, and of the worker that runs errands, where rehearsals leave it in the caches.
  CompilerScratch compiler_, waiting_compiler_;
  KernelPrograms programs_;
  AheadCompiler ahead_;
  bool compiles_ahead_ = false;  // a worker is at it
  Rehearsal rehearsal_;
  MemoryPlanner planner_;
  std::vector<size_t> first_buffer_;  // by call, into buffers_
  OwnLines<std::byte*> buffers_;
  std::vector<Prepared> prepared_;  // by step
  Arena scratch_;
  int64_t largest_scratch_ = 0;  // of this run
  uint32_t next_ = 0;            // step to prepare next
  std::vector<uint32_t> news_;   // kernels of the model that this run compiled
  bool shares_ = true;           // this run has work for several cores
  // Of the launch at hand; they keep their capacity.
  int32_t position_ = 0;
  std::vector<BufferRequest> requests_;
  size_t first_request_ = 0;  // of the chain at hand, in Prepared::scratch
  std::vector<Task> tasks_;
  // Of the turns at hand.
  std::vector<size_t> turn_ends_;  // of stages, in tasks_
  std::vector<Moving> moving_;
};

}  // namespace dvm
