// A model that runs at the shapes of its inputs, whatever they are: who may run it when. How it
// runs is said in runner.h.
//
// Thread-safe: as many runs of a model at a time as there are lanes, each with a device for it
// (runtime/device_pool.h): one where the device has all cores. The others wait; runs of different
// models prefer lanes where nobody runs, and interleave on the device where they share one. A run
// that begins inside another one of its thread (a signal handler or a finalizer, in a vendor call)
// waits for nobody: where all runners are taken, it has one of its own. So no run that waits holds
// what another waits for. A forked child has new runners, on devices of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/compile_times.h"
#include "runtime/device_pool.h"
#include "runtime/listing.h"
#include "runtime/model.h"
#include "runtime/run_lock.h"
#include "runtime/runner.h"
#include "runtime/schedule.h"
#include "runtime/simulation.h"
#include "runtime/statistics.h"

namespace dvm {

class Executor {
 public:
  Executor(Model model, std::shared_ptr<SharedDevice> device,
           std::unique_ptr<VendorLibrary> vendor);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // As Runner::run. What this run cost goes to `record`, too.
  std::vector<Tensor> run(std::span<const Tensor> inputs, std::span<const Tensor> given,
                          const RunRequest& request = {}, RunStatistics* record = nullptr);

  // Runs that begin from now on drop programs and memory layouts, and make their own as for a shape
  // not seen before.
  void forget() { forgotten_.fetch_add(1, std::memory_order_relaxed); }

  // The programs of every kernel for given symbols (by name), in text form: kernel name, text.
  // Kernels whose dims depend on other symbols are left out.
  // Of the device, or of another target.
  std::vector<Listing> disassemble(const std::map<std::string, int64_t>& symbols, bool steps,
                                   const Target* target) const;

  // How long each distinct kernel takes to compile, for given symbols; leaves out as disassemble.
  std::vector<CompileTime> compile_times(const std::map<std::string, int64_t>& symbols,
                                         int repeats) const;

  // What a simulated part takes for given symbols (runtime/simulation.h).
  SimulatedModel simulate(const std::map<std::string, int64_t>& symbols, const Target& target,
                          const NpuPart& part, const SimulationRequest& request) const;

  // The symbols that inputs of these shapes bind.
  std::map<std::string, int64_t> bind(std::span<const Tensor> inputs);

  // A runner on a device, for whoever runs this as a body (runtime/control.h).
  // `chain`, of the model, is all that it runs, if it is not null; it has to outlive the runner.
  std::unique_ptr<Runner> make_runner(std::shared_ptr<SharedDevice> device,
                                      Cores cores = Cores::all, const Chain* chain = nullptr) const;

  RunStatistics statistics() const;  // of the run that ended last
  const Model& model() const { return model_; }
  const SharedDevice& device() const { return *device_; }

 private:
  class Turn;

  // Who runs on a lane.
  struct Lane {
    RunLock lock;
    std::unique_ptr<Runner> runner;  // of who holds the lock; made at its first run
    uint32_t forgotten = 0;
  };

  std::shared_ptr<SharedDevice> device_of(size_t lane) const;
  Dims dims_of(const std::map<std::string, int64_t>& symbols) const;

  const Model model_;
  const Schedule schedule_;
  const std::shared_ptr<SharedDevice> device_;  // of the process that made it
  const std::unique_ptr<VendorLibrary> vendor_;

  std::vector<Lane> lanes_;
  std::atomic<uint32_t> freed_{0};  // how often a lane was
  std::atomic<uint32_t> forgotten_{0};
  RunStatistics statistics_;  // guarded by whole_at_fork()
};

}  // namespace dvm
