#include "npu/host/ceilings.h"

#include <algorithm>
#include <cstring>

#include "npu/host/together.h"

namespace dvm {
namespace {

constexpr int64_t kSteps = 400'000;  // some milliseconds
constexpr size_t kAllBuffers = size_t{256} << 20;
constexpr size_t kSmallestBuffer = size_t{4} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

// Seconds of the fastest try.
template <class Work>
double fastest(int cores, int tries, const Work& work) {
  return std::ranges::min(seconds_together(cores, tries, work));
}

}  // namespace

CeilingMeter::CeilingMeter(int cores, const InstructionTable& table) : limits_(limits_of(table)) {
  const auto each = kAllBuffers / (2 * static_cast<size_t>(cores));
  const size_t bytes = std::max(each / kHugePage * kHugePage, kSmallestBuffer);
  count_ = static_cast<int64_t>(bytes / sizeof(float));
  for (int core = 0; core < cores; core++) {
    for (std::vector<MeasuredBuffer>* buffers : {&from_, &to_}) {
      buffers->push_back(measured_buffer(bytes));
    }
  }
}

Ceilings CeilingMeter::measure() {
  const int cores = static_cast<int>(from_.size());
  const auto bytes = static_cast<double>(count_) * sizeof(float) * cores;
  std::vector<int64_t> operations(from_.size());
  const double multiplying = fastest(cores, 4, [&](int core, int) {
    operations[static_cast<size_t>(core)] = limits_.multiply_add(kSteps);
  });
  // Around the caches, or as the C library thinks best: which is faster differs between CPUs.
  const double copying = fastest(cores, 4, [&](int core, int attempt) {
    float* to = to_[static_cast<size_t>(core)].get();
    const float* from = from_[static_cast<size_t>(core)].get();
    if (attempt % 2 == 0) {
      limits_.copy(to, from, count_);
    } else {
      std::memcpy(to, from, static_cast<size_t>(count_) * sizeof(float));
    }
  });
  const double reading = fastest(cores, 2, [&](int core, int) {
    limits_.read(from_[static_cast<size_t>(core)].get(), count_);
    limits_.read(to_[static_cast<size_t>(core)].get(), count_);
  });
  return {static_cast<double>(operations[0] * cores) / multiplying, 2 * bytes / copying,
          2 * bytes / reading};
}

}  // namespace dvm
