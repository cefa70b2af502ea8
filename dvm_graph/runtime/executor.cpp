#include "runtime/executor.h"

#include <algorithm>
#include <mutex>

#include "npu/host/process.h"
#include "runtime/errors.h"

namespace dvm {
namespace {

thread_local int runs_inside = 0;  // of this thread, of whatever models

}  // namespace

// A runner for one run, while this lives.
class Executor::Turn {
 public:
  explicit Turn(Executor& executor) : executor_(executor) {
    if (runs_inside > 0 && !executor.lock_.try_take()) {
      own_ = executor.make_runner();
      runner_ = own_.get();
    } else {
      if (runs_inside == 0) executor.lock_.take();
      try {
        renew();
      } catch (...) {
        executor.lock_.release(process_);
        throw;
      }
    }
    runs_inside++;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    runs_inside--;
    if (own_ == nullptr) executor_.lock_.release(process_);
  }

  Runner& runner() { return *runner_; }

 private:
  // A runner of the parent process may be half changed, and its device has no threads here.
  void renew() {
    std::unique_ptr<Runner>& runner = executor_.runner_;
    if (runner != nullptr && runner->process() != process_) (void)runner.release();
    if (runner == nullptr) runner = executor_.make_runner();
    runner_ = runner.get();
    if (executor_.forgets_.load(std::memory_order_relaxed) &&
        executor_.forgets_.exchange(false, std::memory_order_relaxed)) {
      runner->forget();
    }
  }

  Executor& executor_;
  const uint32_t process_ = process_generation();
  std::unique_ptr<Runner> own_;
  Runner* runner_ = nullptr;
};

Executor::Executor(Model model, std::shared_ptr<SharedDevice> device,
                   std::unique_ptr<VendorLibrary> vendor)
    : model_((check_model(model), std::move(model))),
      schedule_(make_schedule(model_)),
      device_(std::move(device)),
      vendor_(std::move(vendor)),
      runner_(make_runner()) {}

Executor::~Executor() {
  if (runner_ != nullptr && runner_->process() != process_generation()) (void)runner_.release();
}

std::unique_ptr<Runner> Executor::make_runner(Cores cores, const Chain* chain) const {
  return std::make_unique<Runner>(model_, schedule_, shared_device(device_->request), vendor_.get(),
                                  cores, chain);
}

std::vector<Tensor> Executor::run(std::span<const Tensor> inputs, std::span<const Tensor> given,
                                  const RunRequest& request) {
  Turn turn(*this);
  std::vector<Tensor> outputs = turn.runner().run(inputs, given, request);
  const std::lock_guard lock(whole_at_fork());
  statistics_ = turn.runner().statistics();
  return outputs;
}

std::map<std::string, int64_t> Executor::bind(std::span<const Tensor> inputs) {
  Turn turn(*this);
  return turn.runner().bind(inputs);
}

RunStatistics Executor::statistics() const {
  const std::lock_guard lock(whole_at_fork());
  return statistics_;
}

Dims Executor::dims_of(const std::map<std::string, int64_t>& symbols) const {
  Dims dims(model_.dims);
  for (const auto& [name, value] : symbols) {
    const auto known = std::find(model_.dims.symbols.begin(), model_.dims.symbols.end(), name);
    if (known == model_.dims.symbols.end()) throw InputError("the model has no dim " + name);
    dims.bind(static_cast<int>(known - model_.dims.symbols.begin()), value);
  }
  dims.evaluate();
  return dims;
}

std::vector<Listing> Executor::disassemble(const std::map<std::string, int64_t>& symbols,
                                           bool steps, const Target* target) const {
  const Target& of = target != nullptr ? *target : device_->device->target();
  return list_programs(model_, dims_of(symbols), of, steps);
}

std::vector<CompileTime> Executor::compile_times(const std::map<std::string, int64_t>& symbols,
                                                 int repeats) const {
  return dvm::compile_times(model_, dims_of(symbols), device_->device->target(), repeats);
}

SimulatedModel Executor::simulate(const std::map<std::string, int64_t>& symbols,
                                  const Target& target, const NpuPart& part,
                                  const SimulationRequest& request) const {
  return simulate_model(model_, dims_of(symbols), target, part, request);
}

}  // namespace dvm
