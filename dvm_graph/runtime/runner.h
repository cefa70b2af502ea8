// A run of a model, and what it leaves for the next one.
//
//   bind dims -> evaluate the table of dims -> lay out memory -> launch step by step
//
// and again from the second on behind each vendor call that decides dims. Programs and the memory
// layout of the previous run serve again where its dims were the same.
//
// After runs that were as large, a run takes nothing from the heap but what it returns.
//
// One run at a time. A failed run leaves nothing behind. Of one process: executor.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/binding.h"
#include "runtime/chains.h"
#include "runtime/control.h"
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
  // what it likes: run() lets it through. `context` is that of the run.
  virtual void run(uint32_t partition, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                   void* context) = 0;
};

// Where the tensors of a body lie, turn by turn.
class BodyTurns {
 public:
  // Called before each turn, the one before, if any, being done: writes where inputs and outputs of
  // the next one lie, outputs apart from everything else. False: there is none.
  virtual bool next(std::span<std::byte*> inputs, std::span<std::byte*> outputs) noexcept = 0;

 protected:
  ~BodyTurns() = default;
};

class Runner {
 public:
  // `vendor` may be null where the model has no vendor calls.
  // `cores`: of the device, that it makes programs for. `chain`: all that it runs; null:
  // everything.
  Runner(const Model& model, const Schedule& schedule, std::shared_ptr<SharedDevice> device,
         VendorLibrary* vendor, Cores cores = Cores::all, const Chain* chain = nullptr);

  // `inputs` in the model's order; absent ones are errors. `given` holds caller-owned arrays for
  // outputs, absent where a fresh one is wanted; it may be empty. Throws InputError, ShapeError,
  // OutOfMemoryError, ExecutionError, CancelledError.
  std::vector<Tensor> run(std::span<const Tensor> inputs, std::span<const Tensor> given,
                          const RunRequest& request);

  // Whether the model may run turn by turn: its steps are launches only, which one after the other
  // need nothing of the host.
  bool may_repeat() const;
  // Turn by turn, in one launch, with tensors of these shapes. Ends early where somebody interrupts
  // it. Throws as run does.
  void repeat(std::span<const Tensor> inputs, BodyTurns& turns, const RunRequest& request);
  // Seconds that one core is predicted to take for a turn at the dims of the run at hand: all of
  // it, and then each of the chains.
  std::span<const double> predict_turn(std::span<const Tensor> inputs, const RunRequest& request,
                                       std::span<const Chain> chains);
  // Whether a turn is predicted to be over, with one core, before several have met.
  bool is_short_turn(std::span<const Tensor> inputs, const RunRequest& request);
  // And those for which two cores that share a turn wait for each other.
  double barriers_of_turn() const;

  // What one core repeats by itself.
  struct Part {
    Runner* runner;  // of programs for one core
    std::vector<Tensor> inputs;
    BodyTurns* turns;
  };
  // As repeat, of parts that know nothing of each other, in one launch. All are of one model; the
  // profile is in the statistics of the first.
  static void repeat_apart(std::span<const Part> parts, const RunRequest& request);

  // Drops programs and memory layouts.
  void forget();

  // The symbols that inputs of these shapes bind.
  std::map<std::string, int64_t> bind(std::span<const Tensor> inputs);

  int cores() const { return device_->device->cores(); }
  const Target& target() const { return device_->device->target(); }
  const RunStatistics& statistics() const { return statistics_; }  // of the last run
  uint32_t process() const { return process_; }                    // that it belongs to
  SharedDevice& device() const { return *device_; }

 private:
  // What is left of the previous run for a segment.
  struct Placed {
    bool valid = false;
    std::vector<int64_t> dims;
    std::vector<ValueInfo> infos;         // by value
    std::vector<BufferRequest> requests;  // of Segment::arena
    int64_t bytes = 0;
    Arena arena;
    std::vector<double> turn_seconds;  // empty: nobody has asked yet
  };
  class RunGuard;
  class Repetition;

  std::vector<Tensor> run_steps(std::span<const Tensor> inputs, std::span<const Tensor> given,
                                const RunRequest& request, Profiler* profiler);
  void bind_inputs(std::span<const Tensor> inputs, const RunRequest& request);
  void accept(uint32_t value, const Tensor& tensor);
  void evaluate_dims();
  void enter_segment(size_t index, std::span<const Tensor> given, const RunRequest& request);
  void bind_rows(const GrowingPlace& place);
  void space_rows(const RunRequest& request);
  bool space_results(const RunRequest& request);
  void lay_out_segment(size_t index);
  void begin_turns(std::span<const Tensor> inputs, const RunRequest& request);
  double seconds_of(const Chain* chain) const;
  void plan_memory(size_t index);
  void place_outputs(const Segment& segment, std::span<const Tensor> given,
                     const RunRequest& request);
  void take_memory(Tensor& output, const std::string& name);
  bool place_growing(uint32_t value, int64_t bytes, const RunRequest& request);
  bool place_behind(GrowingPlace& place, const Tensor& after);
  void grow_inside(const GrowingPlace& place);
  int64_t distance_of_made(const GrowingState& state) const;
  bool usable_in_place(const Tensor& given) const;
  void write_dims(const DimsWrite& write, int64_t bytes);
  void write_dims_of(const Segment& segment);
  void run_segment(const Segment& segment, const RunContext& run);
  void run_vendor(const VendorCall& call, const RunContext& run);
  void run_control(uint32_t step, const ControlCall& call, const RunContext& run);
  void run_host(uint32_t step, const HostCall& call, const RunContext& run);
  bool is_spent(uint32_t value, uint32_t step, const RunRequest& request) const;
  void accept_results(const OuterCall& call, std::span<const Tensor> results);
  void release_dying(uint32_t first_step, uint32_t end_step);
  Tensor view_of(uint32_t value) const;
  std::vector<Tensor> collect(std::span<const Tensor> given);
  std::byte*& buffer(uint32_t value) { return buffers_[value + kReservedBuffers]; }
  void put_shape(uint32_t value, std::vector<int64_t>& shape) const;
  int64_t held_bytes() const;

  const Model& model_;
  const Schedule& schedule_;
  const Chain* const chain_;
  const std::shared_ptr<SharedDevice> device_;
  VendorLibrary* const vendor_;
  const uint32_t process_;

  Dims dims_;
  DimBinder binder_;
  Launcher launcher_;
  MemoryPlanner planner_;
  OutputPool output_pool_;
  Arena host_scratch_;                          // of operators that the host carries out
  std::map<uint32_t, ControlRunner> controls_;  // by step
  std::vector<Placed> placed_;                  // by segment
  OwnLines<std::byte*> buffers_;                // kReservedBuffers, then by value
  std::vector<Tensor> tensors_;      // by value: inputs, outputs and vendor results of this run
  std::vector<int64_t> distances_;   // by Model::spaced: of rows whose length decides it, else 0
  std::vector<uint32_t> unchecked_;  // bound values whose dims await evaluation
  RunStatistics statistics_;
};

}  // namespace dvm
