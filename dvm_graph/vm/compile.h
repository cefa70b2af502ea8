// The run-time compiler: a kernel plan and the sizes of this run become programs.
//
//   normalise -> tile -> lower (absorb) -> allocate -> synchronise -> encode
//
// Steady state takes no memory from the heap: CompilerScratch and CompiledKernel keep their
// capacity from kernel to kernel. The result depends on the arguments only, not on earlier calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/normalise.h"
#include "kernels/plan.h"
#include "vm/program.h"
#include "vm/target.h"

namespace dvm {

struct CompiledKernel {
  // Programs of a stage are independent; a barrier over the cores separates stages.
  struct Stage {
    uint32_t first_program = 0, program_count = 0;
  };

  std::vector<Program> programs;  // only the first `program_count` are valid: the rest is capacity
  std::vector<Stage> stages;
  uint32_t program_count = 0;
  int64_t workspace_bytes = 0;  // buffer kWorkspace; 0: none needed
  // Grid dims of programs that may become shorter (vm/resize.h).
  struct OpenDim {
    uint32_t program = 0;
    int dim = -1;
    OpenAxis axis;
  };
  std::vector<OpenDim> open;
  bool one_memory =
      false;  // products run as if a cube core had one local memory: it lacks something

  void clear();            // keeps capacity
  Program& add_program();  // appends an empty program to the last stage
  void add_stage();
};

enum class CompileStatus {
  ok,
  empty,          // some extent is 0 and there is nothing to write: no programs
  does_not_fit,   // use the plan's fallback, or more memory; no programs
  costs_more,     // than the plan's fallback, by prediction; no programs
  wants_extents,  // is rather compiled for the extents there are than for any up to some; no
                  // programs
};

constexpr bool needs_fallback(CompileStatus status) {
  return status == CompileStatus::does_not_fit || status == CompileStatus::costs_more;
}

// When a kernel is compiled operator by operator (apart.h): slow, but it always fits. `never`: the
// kernel has a fallback, which is better.
enum class Apart : uint8_t { if_needed, never, always };

struct TileCode;

// Sees the tile code behind each step that may change it, of every form that is tried.
using StepObserver = std::function<void(const char* step, const TileCode& code)>;

// Working memory of one compiling thread.
class CompilerScratch {
 public:
  CompilerScratch();
  ~CompilerScratch();
  CompilerScratch(CompilerScratch&&) noexcept;
  CompilerScratch& operator=(CompilerScratch&&) noexcept;

  struct State;
  State& state() { return *state_; }

  void observe(StepObserver observer);

 private:
  std::unique_ptr<State> state_;
};

// `dims` is the model's table of evaluated dim expressions, `values` its table of values; both are
// indexed by the plan. `room`, by axis of the plan: if more than 0, the programs serve for as many
// elements along it and for fewer, and they are to be told how many before they run
// (vm/resize.h). `out` is cleared first. Throws std::invalid_argument for a plan that breaks
// the rules of plan.h (a bug of the caller, not of the shape).
CompileStatus compile_kernel(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values,
                             const Target& target, CompilerScratch& scratch, CompiledKernel& out,
                             Apart apart = Apart::if_needed, const int64_t* room = nullptr);

}  // namespace dvm
