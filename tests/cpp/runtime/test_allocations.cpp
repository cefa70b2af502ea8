// A run takes nothing from the heap but what it returns, once runs as large have been: binding
// dims, laying out memory, compiling and launching keep what they took. Of the calling thread,
// while it compiles itself, and while a waiting core may do so: what that one takes first depends
// on when it comes to it.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "../counting_new.h"
#include "../targets.h"
#include "models.h"

namespace dvm::testing {
namespace {

// speculating_model, whose output is written in place, run at n elements. Returns what the run
// took.
int64_t allocations_of(Executor& executor, std::vector<float>& x, std::vector<float>& y,
                       int64_t n) {
  x.resize(static_cast<size_t>(n));
  y.resize(static_cast<size_t>(n));
  const Tensor input = vector_tensor(x), given = vector_tensor(y);
  const int64_t before = allocations;
  const std::vector<Tensor> outputs = executor.run(std::span(&input, 1), std::span(&given, 1));
  return allocations - before;
}

// Keeps the worker that runs errands from others, so that the calling thread compiles.
class Hindrance final : public Errand {
 public:
  explicit Hindrance(Device& device) : device_(device) {
    device.wake();
    device.standby()->post(*this);
    for (int i = 0; i < 20000 && device.cores() > 1 && !begun_; i++) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      device.wake();
    }
  }
  ~Hindrance() {
    may_end_ = true;
    device_.standby()->recall(*this);
  }
  void run() noexcept override {
    begun_ = true;
    while (!may_end_) std::this_thread::yield();
  }

 private:
  Device& device_;
  std::atomic<bool> begun_{false}, may_end_{false};
};

constexpr int64_t kExtents[] = {100000, 7, 2, 1, 4099, 0, 2, 31};

int failures_of(Executor& executor, std::vector<float>& x, std::vector<float>& y) {
  int failures = 0;
  for (const int64_t n : kExtents) {
    const int64_t taken = allocations_of(executor, x, y, n);
    const bool compiled = executor.statistics().kernels_compiled > 0;
    constexpr int64_t kReturned = 2;  // the list of outputs and the shape of one
    if (taken == kReturned && compiled) continue;
    failures++;
    std::fprintf(stderr, "FAILED: %ld allocations at n = %ld%s\n", static_cast<long>(taken),
                 static_cast<long>(n), compiled ? "" : ", nothing compiled");
  }
  return failures;
}

int failures_at(int64_t cores) {
  const auto device = shared_device({static_cast<int>(cores), "", 0, plain_machine()});
  Executor executor(speculating_model(), device, nullptr);
  std::vector<float> x, y;
  int failures = 0;
  {
    const Hindrance hindrance(*device->device);
    for (const int64_t n : kExtents) allocations_of(executor, x, y, n);
    for (const int64_t n : kExtents) allocations_of(executor, x, y, n);
    failures += failures_of(executor, x, y);
  }
  for (int round = 0; round < 20; round++) failures += failures_of(executor, x, y);
  const Hindrance hindrance(*device->device);
  return failures + failures_of(executor, x, y);
}

}  // namespace
}  // namespace dvm::testing

int main() {
  int failures = 0;
  for (const int64_t cores : {1, 2, 3}) failures += dvm::testing::failures_at(cores);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
