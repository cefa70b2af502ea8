// Has a waiting core compile the kernels of a run, step by step and ahead of the caller.
//
// A worker that waits has rehearsed the compiler (rehearsal.h) and finds it in its own caches,
// while what the caller did since then has pushed it out of the caller's. And the caller works at
// tiles meanwhile. Nobody waits for a worker that does not begin at once; then the caller compiles
// as if there were none.
//
// Not thread-safe, but for what the worker does. Between begin and end the caller must leave dims,
// values and the programs alone, and may read programs of steps that `has` says are there.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "npu/device.h"
#include "runtime/kernel_programs.h"

namespace dvm {

class AheadCompiler final : public Errand {
 public:
  // A kernel that the worker compiled. The first one's time begins when it was asked for.
  struct Done {
    uint32_t call;
    int64_t start_ns, elapsed_ns;
  };

  // `left_out`: by call, whether nobody wants it; empty: all are wanted.
  AheadCompiler(const Model& model, KernelPrograms& programs, Standby* standby,
                CompilerScratch& compiler, std::span<const char> left_out = {});

  // Asks for the kernels of steps [first, end) that are not current. False: no worker came.
  bool begin(uint32_t first_step, uint32_t end_step, const Dims& dims, const ValueInfo* values);
  // Whether the kernels of a step are there, or the worker gave up: on something that the caller
  // will meet, too, and can tell about.
  bool has(uint32_t step) const;
  void await(uint32_t step) const;
  // Stops the worker, and returns what it compiled, until the next begin.
  std::span<const Done> end();

  void run() noexcept override;

 private:
  void compile(uint32_t call);

  const Model& model_;
  KernelPrograms& programs_;
  Standby* const standby_;
  CompilerScratch& compiler_;
  const std::span<const char> left_out_;
  const Dims* dims_ = nullptr;
  const ValueInfo* values_ = nullptr;
  uint32_t first_step_ = 0, end_step_ = 0;
  int64_t asked_ns_ = 0;
  std::vector<Done> done_;
  std::atomic<uint32_t> there_{0};  // the kernels of steps before this one are
  std::atomic<bool> begun_{false}, stop_{false}, finished_{true};
};

}  // namespace dvm
