// Every allocation may fail, as in the tests of SQLite: of a cycle of making an executor, running
// it at several shapes and dropping what it gave, the first allocation fails, then the second, and
// so on until none does, on all threads, once and from then on. Nothing ends the process, what
// fails says that memory ran out, and the executor then gives what it gives otherwise.
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "../counting_new.h"
#include "../targets.h"
#include "checks.h"
#include "models.h"
#include "runtime/errors.h"

namespace dvm::testing {
namespace {

constexpr int64_t kExtents[] = {3, 2, 40000, 1, 0};

// Lets the allocation after `succeeding` ones fail, and `more` all that follow, while this lives.
class Scarcity {
 public:
  explicit Scarcity(int64_t succeeding) { until_failure = succeeding; }
  ~Scarcity() { until_failure = -1; }
  bool reached() const { return until_failure == 0; }
};

// What the action did: true where it ended, false where memory ran out. All else is a failure.
template <typename Action>
bool survives(const Action& action, const std::string& what) {
  try {
    action();
    return true;
  } catch (const std::bad_alloc&) {
  } catch (const OutOfMemoryError&) {
  } catch (const std::exception& error) {
    until_failure = -1;
    check(false, what + " gave: " + error.what());
  }
  return false;
}

struct Vectors {
  std::vector<float> data;
  Tensor tensor;

  explicit Vectors(int64_t n) : data(static_cast<size_t>(n)) {
    for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<float>(i % 7) - 3;
    tensor = vector_tensor(data);
  }
};

bool is_right(const std::vector<Tensor>& outputs, const Vectors& input) {
  const auto n = static_cast<int64_t>(input.data.size());
  const auto* const y = reinterpret_cast<const float*>(outputs.at(0).data);
  for (size_t i = 0; i < input.data.size(); i++) {
    if (y[i] != speculated(input.data[i], n)) return false;
  }
  return outputs[0].shape == std::vector<int64_t>{n};
}

// Returns how many allocations failed.
int64_t test_runs(int cores, bool profile) {
  const std::string name = std::to_string(cores) + " cores" + (profile ? ", profiled" : "");
  std::vector<Vectors> inputs;
  for (const int64_t n : kExtents) inputs.emplace_back(n);
  const auto device = shared_device({cores, "", 0, plain_machine()});
  std::optional<Executor> executor;
  executor.emplace(speculating_model(), device, nullptr);
  int64_t succeeding = 0;
  for (int64_t calm = 0; calm < 5; succeeding++) {
    const std::string what = name + ", allocation " + std::to_string(succeeding);
    if (succeeding % 4 == 0) executor.emplace(speculating_model(), device, nullptr);
    bool reached;
    {
      std::vector<Tensor> kept;
      const Scarcity scarcity(succeeding);
      survives(
          [&] {
            for (const Vectors& input : inputs) {
              kept = executor->run(std::span(&input.tensor, 1), {}, {profile, nullptr, nullptr});
            }
          },
          what);
      kept.clear();  // takes nothing
      reached = scarcity.reached();
    }
    calm = reached ? 0 : calm + 1;
    for (const Vectors& input : inputs) {
      check(is_right(executor->run(std::span(&input.tensor, 1), {}), input), what + ": afterwards");
    }
  }
  return succeeding - 5;
}

// Making devices and executors.
int64_t test_making() {
  const Vectors input(40);
  for (int64_t succeeding = 0;; succeeding++) {
    const std::string what = "making, allocation " + std::to_string(succeeding);
    Model model = speculating_model();
    const Scarcity scarcity(succeeding);
    survives(
        [&] {
          Executor executor(std::move(model), shared_device({2, "", 1 << 16, plain_machine()}),
                            nullptr);
          until_failure = -1;
          check(is_right(executor.run(std::span(&input.tensor, 1), {}), input), what);
        },
        what);
    if (until_failure < 0) return succeeding;
  }
}

}  // namespace
}  // namespace dvm::testing

int main() {
  using namespace dvm::testing;
  // So many, at the least, or the test looks at nothing.
  check(test_making() > 100, "making takes memory");
  for (const int cores : {1, 3}) {
    for (const bool profile : {false, true}) check(test_runs(cores, profile) > 20, "so do runs");
  }
  return report();
}
