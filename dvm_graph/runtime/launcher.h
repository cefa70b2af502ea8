// Compiles kernels and launches them: while one launch runs, the caller's thread compiles the next.
//
// The programs of the last run are kept, and used again while dims stay the same; nothing else is
// cached. A call whose guard is 0 or whose kernel does not fit the device is replaced by its
// fallback calls. Fallback intermediates and kernel workspaces lie in a scratch arena that is laid
// out per launch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/device_pool.h"
#include "runtime/memory.h"
#include "runtime/memory_plan.h"
#include "runtime/model.h"
#include "runtime/profile.h"
#include "runtime/schedule.h"
#include "runtime/statistics.h"
#include "vm/compile.h"

namespace dvm {

// What launches of one run share.
struct RunContext {
  const Dims& dims;
  const ValueInfo* values;  // by value
  std::byte** buffers;      // by value; behind kReservedBuffers entries
  RunStatistics& statistics;
  Profiler* profiler;  // null where nobody asks
};

class Launcher {
 public:
  Launcher(const Model& model, const Schedule& schedule, SharedDevice& device);

  // The programs of these steps are out of date.
  void invalidate(uint32_t first_step, uint32_t end_step);

  // Runs consecutive steps; writes of dims among them are not its business. Throws ExecutionError
  // for a trap, CompileError, OutOfMemoryError.
  void run(uint32_t first_step, uint32_t end_step, const RunContext& run);

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
  struct Call {
    CompiledKernel compiled;
    std::vector<std::byte*> buffers;  // with a workspace of its own; empty where it needs none
  };

  void prepare(uint32_t step, const RunContext& run);
  void resolve(uint32_t call, const RunContext& run, Prepared& out);
  bool compile(uint32_t call, const RunContext& run, Prepared& out);
  void verify_programs(uint32_t call, const RunContext& run) const;
  void request_scratch(uint32_t call, int32_t first, const RunContext& run, Prepared& out);
  void place_scratch(Prepared& out);
  void bind_scratch(const Prepared& prepared, const RunContext& run);
  void launch(uint32_t step, uint32_t next, const RunContext& run);
  size_t collect_tasks(const Prepared& prepared, size_t first, const RunContext& run);
  void finish();

  const Model& model_;
  const Schedule& schedule_;
  SharedDevice& device_;
  CompilerScratch compiler_;
  MemoryPlanner planner_;
  std::vector<Call> calls_;
  std::vector<Prepared> prepared_;  // by step
  Arena scratch_;
  int64_t largest_scratch_ = 0;  // of this run
  // Of the launch at hand; they keep their capacity.
  int32_t position_ = 0;
  std::vector<BufferRequest> requests_;
  size_t first_request_ = 0;  // of the chain at hand, in Prepared::scratch
  std::vector<Task> tasks_;
};

}  // namespace dvm
