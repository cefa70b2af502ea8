#include "runtime/executor.h"

#include <algorithm>
#include <mutex>
#include <utility>

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
    lane_ = free_lane();
    if (lane_ == nullptr && runs_inside > 0) {
      own_ = executor.make_runner(shared_device(executor.device_->request));
      runner_ = own_.get();
    } else {
      while (lane_ == nullptr) await_lane();
      try {
        renew();
      } catch (...) {
        release(*lane_);
        throw;
      }
    }
    runner_->device().runs++;
    runs_inside++;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    runs_inside--;
    runner_->device().runs--;
    if (lane_ != nullptr) release(*lane_);
  }

  Runner& runner() { return *runner_; }

 private:
  // Taken for this run: one whose device nobody runs on, or else the first, which is warm.
  Lane* free_lane() {
    const bool only = executor_.lanes_.size() == 1;
    for (const bool busy : {false, true}) {
      for (Lane& lane : executor_.lanes_) {
        if (!lane.lock.try_take()) continue;
        if (only || busy || lane.runner == nullptr || lane.runner->device().runs == 0) return &lane;
        release(lane);
      }
    }
    return nullptr;
  }

  void await_lane() {
    const uint32_t freed = executor_.freed_.load(std::memory_order_acquire);
    lane_ = free_lane();
    if (lane_ == nullptr) executor_.freed_.wait(freed, std::memory_order_acquire);
  }

  // A runner of the parent process may be half changed, and its device has no threads here.
  void renew() {
    std::unique_ptr<Runner>& runner = lane_->runner;
    if (runner != nullptr && runner->process() != process_) (void)runner.release();
    if (runner == nullptr) {
      const auto number = static_cast<size_t>(lane_ - executor_.lanes_.data());
      runner = executor_.make_runner(executor_.device_of(number));
    }
    runner_ = runner.get();
    const uint32_t forgotten = executor_.forgotten_.load(std::memory_order_relaxed);
    if (std::exchange(lane_->forgotten, forgotten) != forgotten) runner->forget();
  }

  void release(Lane& lane) {
    lane.lock.release(process_);
    executor_.freed_.fetch_add(1, std::memory_order_release);
    executor_.freed_.notify_one();
  }

  Executor& executor_;
  const uint32_t process_ = process_generation();
  Lane* lane_ = nullptr;
  std::unique_ptr<Runner> own_;
  Runner* runner_ = nullptr;
};

Executor::Executor(Model model, std::shared_ptr<SharedDevice> device,
                   std::unique_ptr<VendorLibrary> vendor)
    : model_((check_model(model), std::move(model))),
      schedule_(make_schedule(model_)),
      device_(std::move(device)),
      vendor_(std::move(vendor)),
      lanes_(static_cast<size_t>(lanes_of(device_->request))) {
  lanes_[0].runner = make_runner(device_);
}

Executor::~Executor() {
  for (Lane& lane : lanes_) {
    if (lane.runner != nullptr && lane.runner->process() != process_generation()) {
      (void)lane.runner.release();
    }
  }
}

std::unique_ptr<Runner> Executor::make_runner(std::shared_ptr<SharedDevice> device, Cores cores,
                                              const Chain* chain) const {
  return std::make_unique<Runner>(model_, schedule_, std::move(device), vendor_.get(), cores,
                                  chain);
}

std::shared_ptr<SharedDevice> Executor::device_of(size_t lane) const {
  DeviceRequest request = device_->request;
  request.lane = static_cast<int>(lane);
  return shared_device(std::move(request));
}

std::vector<Tensor> Executor::run(std::span<const Tensor> inputs, std::span<const Tensor> given,
                                  const RunRequest& request, RunStatistics* record) {
  Turn turn(*this);
  std::vector<Tensor> outputs = turn.runner().run(inputs, given, request);
  if (record != nullptr) *record = turn.runner().statistics();
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
