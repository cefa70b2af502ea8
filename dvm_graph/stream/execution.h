// Compiles the kernels of a flush and runs them, level by level: kernels of a level wait for none
// of each other, and share a stage of the device. While one level runs, the caller compiles the
// next.
//
// Nothing is kept from flush to flush but capacity.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/device_pool.h"
#include "runtime/memory.h"
#include "runtime/memory_plan.h"
#include "stream/lower.h"
#include "vm/compile.h"

namespace dvm::stream {

struct Statistics {
  int64_t operators = 0;  // appended
  int64_t dead = 0;       // of them, those that nobody needed any more
  int64_t flushes = 0, kernels = 0, stored = 0;
  int64_t compile_ns = 0, run_ns = 0;  // run: of flushes, with everything
};

class Execution {
 public:
  explicit Execution(DeviceRequest request) : request_(std::move(request)) {}

  // Forgets the kernels of the last flush.
  void clear() { count_ = 0; }
  Draft& add_kernel(int32_t level);
  std::span<const int32_t> levels() const { return {levels_.data(), count_}; }
  Draft& draft(size_t kernel) { return drafts_[kernel]; }

  // Compiles the kernels whose plans are `weighed`: they keep rows in local memory. Returns the
  // first that does not fit, or is predicted to take longer than separate ones; -1: none.
  int compile_weighed(const Graph& graph, Statistics& statistics);

  // `buffers`: by value of the graph, where it lies. Throws ExecutionError for a trap,
  // CompileError, OutOfMemoryError.
  void run(const Graph& graph, std::span<std::byte* const> buffers, Statistics& statistics);

  SharedDevice& device();

 private:
  void compile(int32_t level, const Graph& graph, Statistics& statistics);
  CompileStatus compile(size_t kernel, const Graph& graph, Apart apart);
  void bind(int32_t level, std::span<std::byte* const> buffers);
  size_t collect(int32_t level, size_t stage);
  void finish();

  const DeviceRequest request_;
  std::shared_ptr<SharedDevice> device_;
  uint32_t process_ = 0;
  CompilerScratch compiler_;
  size_t count_ = 0;  // of the tables by kernel, what is in use
  std::vector<Draft> drafts_;
  std::vector<int32_t> levels_;
  std::vector<CompiledKernel> compiled_;
  std::vector<char> ready_;  // compiled ahead of their level
  std::vector<size_t> first_buffer_;
  std::vector<ValueInfo> infos_;
  std::vector<std::byte*> buffers_;  // of the level at hand
  std::vector<Task> tasks_;
  Arena workspace_;
  int64_t largest_workspace_ = 0;
};

}  // namespace dvm::stream
