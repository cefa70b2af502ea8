#include "npu/host/rates.h"

#include <cstddef>

#include "npu/host/together.h"

namespace dvm {
namespace {

constexpr int kRounds = 31;
constexpr int64_t kMultiplySteps = 20'000;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLargest = 192 * kMiB, kAll = 1024 * kMiB, kSmallest = 16 * kMiB;
constexpr int64_t kSlice = 4 * kMiB;  // of memory, for one try: shorter than a time slice
constexpr int64_t kTransferred = 128 << 10;
constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kChases = 2'000;

double best_of(const std::vector<double>& seconds) { return *std::ranges::min_element(seconds); }

// Of what cores share with others: what three of four tries do not reach tells of this machine's
// other work, not of the machine.
double quartile_of(std::vector<double> seconds) {
  const auto quarter = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 4);
  std::nth_element(seconds.begin(), quarter, seconds.end());
  return *quarter;
}

// A chain through all lines of a buffer, each one somewhere else: no prefetcher follows it.
int64_t link_lines(float* buffer, int64_t bytes, int64_t line) {
  int64_t lines = 1;
  while (lines * 2 * line <= bytes) lines *= 2;
  auto* at = reinterpret_cast<std::byte*>(buffer);
  for (int64_t i = 0; i < lines; i++) {
    const int64_t next = (i * 1103515245 + 12345) & (lines - 1);
    std::memcpy(at + i * line, &next, sizeof next);
  }
  return lines;
}

class Meter {
 public:
  Meter(int cores, const InstructionTable& table, const Caches& caches)
      : cores_(cores), limits_(limits_of(table)), caches_(caches) {
    const int64_t each = std::clamp(kAll / cores, kSmallest, kLargest);
    large_ = each / (2 * kMiB) * (2 * kMiB);
    for (int core = 0; core < cores; core++) {
      buffers_.push_back(measured_buffer(static_cast<size_t>(large_)));
    }
  }

  Costs measure() {
    std::vector<double> multiply, private_read, private_write, shared, read, write, stream,
        transfer, latency;
    const int64_t near = caches_.private_bytes / 2;
    // Beyond the core's own cache, and not beyond its share of the other one.
    const int64_t middle = std::clamp(caches_.shared_bytes / (4 * cores_),
                                      2 * caches_.private_bytes, 4 * caches_.private_bytes);
    const int64_t near_times = 16 * kMiB / near + 1, middle_times = 4 * kMiB / middle + 1;
    int64_t operations = 0;
    for (int round = 0; round < kRounds; round++) {
      multiply.push_back(together([&](int core) {
        const int64_t done = limits_.multiply_add(kMultiplySteps);
        if (core == 0) operations = done;
      }));
      private_read.push_back(reading(0, near, near_times));
      private_write.push_back(together([&](int core) {
        for (int64_t i = 0; i < near_times; i++) set(core, near, static_cast<int>(i));
      }));
      shared.push_back(reading(0, middle, middle_times));
      // A slice that the caches have long forgotten.
      const int64_t slice = round * kSlice % (large_ - kSlice + 1);
      read.push_back(reading(slice, kSlice, 1));
      const int64_t other = (slice + large_ / 3) % (large_ - kSlice + 1) / kSlice * kSlice;
      write.push_back(together([&](int core) { fill(core, other); }));
      const int64_t third = (slice + 2 * large_ / 3) % (large_ - kSlice + 1) / kSlice * kSlice;
      stream.push_back(together([&](int core) { stream_to(core, third); }));
      if (cores_ > 1) transfer.push_back(transferring());
    }
    // Last, as it overwrites what the others read.
    const int64_t lines = link_lines(buffers_[0].get(), large_, caches_.line_bytes);
    for (int round = 0; round < kRounds; round++)
      latency.push_back(chasing(round * lines / kRounds));
    Costs costs;
    const auto rate = [](int64_t bytes, double seconds) {
      return static_cast<double>(bytes) / seconds;
    };
    costs.multiply_adds = static_cast<double>(operations) / 2 / best_of(multiply);
    costs.private_read = rate(near * near_times, best_of(private_read));
    costs.private_write = rate(near * near_times, best_of(private_write));
    costs.shared_read = rate(middle * middle_times, quartile_of(shared));
    costs.memory_read = rate(kSlice, quartile_of(read));
    costs.memory_write = rate(kSlice, quartile_of(write));
    costs.memory_stream = rate(kSlice, quartile_of(stream));
    if (cores_ > 1) costs.core_transfer = rate(kTransferred, quartile_of(transfer));
    costs.memory_latency = quartile_of(latency) / static_cast<double>(kChases);
    return costs;
  }

 private:
  template <class Work>
  double together(const Work& work) {
    return seconds_together(cores_, 1, [&](int core, int) { work(core); })[0];
  }

  double reading(int64_t from, int64_t bytes, int64_t times) {
    const int64_t count = bytes / 512 * (512 / static_cast<int64_t>(sizeof(float)));
    // The first time brings the bytes in; where they are read once, that is what is measured.
    return seconds_together(cores_, times > 1 ? 2 : 1,
                            [&](int core, int) {
                              for (int64_t i = 0; i < times; i++)
                                limits_.read(at(core) + from / kFloat, count);
                            })
        .back();
  }

  void set(int core, int64_t bytes, int value) {
    std::memset(at(core), value, static_cast<size_t>(bytes));
  }

  // Stores through the caches: std::memset would go around them.
  void fill(int core, int64_t from) {
    volatile double* to = reinterpret_cast<double*>(at(core) + from / kFloat);
    const int64_t line = caches_.line_bytes / static_cast<int64_t>(sizeof(double));
    const int64_t count = kSlice / static_cast<int64_t>(sizeof(double));
    for (int64_t i = 0; i < count; i += line) to[i] = 0;  // memory moves whole lines
  }

  // Out of the caches, to memory around them.
  void stream_to(int core, int64_t start) {
    constexpr int64_t kBlock = 4096;
    alignas(64) float from[kBlock] = {};
    const int64_t count = kSlice / static_cast<int64_t>(sizeof(float));
    float* to = at(core) + start / kFloat;
    for (int64_t i = 0; i + kBlock <= count; i += kBlock) limits_.copy(to + i, from, kBlock);
  }

  // One core reads what another has just written.
  double transferring() {
    double seconds = 0;
    std::barrier written(2);
    seconds_together(2, 3, [&](int core, int attempt) {
      using Clock = std::chrono::steady_clock;
      if (core == 0) set(0, kTransferred, attempt);
      written.arrive_and_wait();
      if (core == 0) return;
      const Clock::time_point start = Clock::now();
      limits_.read(at(0), kTransferred / static_cast<int64_t>(sizeof(float)));
      const std::chrono::duration<double> elapsed = Clock::now() - start;
      seconds = elapsed.count();
    });
    return seconds;
  }

  double chasing(int64_t from) {
    using Clock = std::chrono::steady_clock;
    const auto* lines = reinterpret_cast<const std::byte*>(at(0));
    const Clock::time_point start = Clock::now();
    int64_t next = from;
    for (int64_t i = 0; i < kChases; i++) {
      std::memcpy(&next, lines + next * caches_.line_bytes, sizeof next);
    }
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    found_ = next;
    return elapsed.count();
  }

  float* at(int core) { return buffers_[static_cast<size_t>(core)].get(); }

  const int cores_;
  const Limits& limits_;
  const Caches& caches_;
  int64_t large_ = 0;
  std::vector<MeasuredBuffer> buffers_;
  volatile int64_t found_ = 0;  // so that the chain is followed
};

}  // namespace

Costs measure_rates(int cores, const InstructionTable& table, const Caches& caches) {
  return Meter(cores, table, caches).measure();
}

}  // namespace dvm
