// Runs a model at the shapes of its inputs, whatever they are.
//
//   bind dims -> evaluate the table of dims -> lay out memory -> launch step by step
//
// and again from the second on behind each vendor call that decides dims. Programs and the memory
// layout of the previous run serve again where its dims were the same.
//
// After runs that were as large, a run takes nothing from the heap but what it returns.
//
// Thread-safe: one run of a model at a time, the others wait; different models interleave on the
// device. A failed run leaves nothing behind.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/binding.h"
#include "runtime/compile_times.h"
#include "runtime/device_pool.h"
#include "runtime/launcher.h"
#include "runtime/memory.h"
#include "runtime/memory_plan.h"
#include "runtime/model.h"
#include "runtime/output_pool.h"
#include "runtime/schedule.h"
#include "runtime/statistics.h"

namespace dvm {

// Runs the partitions that the compiler left to a vendor library.
class VendorLibrary {
 public:
  virtual ~VendorLibrary() = default;
  // Fills in `outputs` (dtype, shape, data, owner). Inputs are valid during the call only. Throws
  // what it likes: run() lets it through.
  virtual void run(uint32_t partition, std::span<const Tensor> inputs,
                   std::span<Tensor> outputs) = 0;
};

class Executor {
 public:
  Executor(Model model, std::shared_ptr<SharedDevice> device,
           std::unique_ptr<VendorLibrary> vendor);

  // `inputs` in the model's order; absent ones are errors. `given` holds caller-owned arrays for
  // outputs, absent where a fresh one is wanted; it may be empty. Throws InputError, ShapeError,
  // OutOfMemoryError, ExecutionError. `profile` also records where the time goes, in statistics().
  std::vector<Tensor> run(std::span<const Tensor> inputs, std::span<const Tensor> given,
                          bool profile = false);

  // Drops programs and memory layouts: the next run makes its own, as for a shape not seen before.
  void forget();

  // The programs of every kernel for given symbols (by name), in text form: kernel name, text.
  // Kernels whose dims depend on other symbols are left out.
  std::vector<std::pair<std::string, std::string>> disassemble(
      const std::map<std::string, int64_t>& symbols) const;

  // How long each distinct kernel takes to compile, for given symbols; leaves out as disassemble.
  std::vector<CompileTime> compile_times(const std::map<std::string, int64_t>& symbols,
                                         int repeats) const;

  // The symbols that inputs of these shapes bind.
  std::map<std::string, int64_t> bind(std::span<const Tensor> inputs);

  RunStatistics statistics() const;  // of the run that ended last
  const Model& model() const { return model_; }
  const SharedDevice& device() const { return *device_; }

 private:
  // What is left of the previous run for a segment.
  struct Placed {
    bool valid = false;
    std::vector<int64_t> dims;
    std::vector<ValueInfo> infos;         // by value
    std::vector<BufferRequest> requests;  // of Segment::arena
    int64_t bytes = 0;
    Arena arena;
  };
  class RunGuard;

  Dims dims_of(const std::map<std::string, int64_t>& symbols) const;
  std::vector<Tensor> run_locked(std::span<const Tensor> inputs, std::span<const Tensor> given,
                                 Profiler* profiler);
  void bind_inputs(std::span<const Tensor> inputs);
  void accept(uint32_t value, const Tensor& tensor);
  void evaluate_dims();
  void enter_segment(size_t index, std::span<const Tensor> given);
  void plan_memory(size_t index);
  void place_outputs(const Segment& segment, std::span<const Tensor> given);
  void take_memory(Tensor& output, const std::string& name);
  bool usable_in_place(const Tensor& given) const;
  void write_dims(const DimsWrite& write, int64_t bytes);
  void run_segment(const Segment& segment, const RunContext& run);
  void run_vendor(const VendorCall& call, Profiler* profiler);
  void release_dying(uint32_t first_step, uint32_t end_step);
  Tensor view_of(uint32_t value) const;
  std::vector<Tensor> collect(std::span<const Tensor> given);
  std::byte*& buffer(uint32_t value) { return buffers_[value + kReservedBuffers]; }
  void put_shape(uint32_t value, std::vector<int64_t>& shape) const;
  int64_t held_bytes() const;

  const Model model_;
  const Schedule schedule_;
  const std::shared_ptr<SharedDevice> device_;
  const std::unique_ptr<VendorLibrary> vendor_;

  mutable std::mutex mutex_;  // guards everything below
  Dims dims_;
  DimBinder binder_;
  Launcher launcher_;
  MemoryPlanner planner_;
  OutputPool output_pool_;
  std::vector<Placed> placed_;       // by segment
  std::vector<std::byte*> buffers_;  // kReservedBuffers, then by value
  std::vector<Tensor> tensors_;      // by value: inputs, outputs and vendor results of this run
  std::vector<uint32_t> unchecked_;  // bound values whose dims await evaluation
  RunStatistics statistics_, last_statistics_;
};

}  // namespace dvm
