// What this machine can do at most, over all threads: f32 multiply-adds in registers, and memory
// traffic of arrays far larger than the last cache. Prints `fma_gflops copy_gbs read_gbs`; a copy
// counts the bytes read and written.
//
// Usage: ceilings THREADS
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
typedef float Vector __attribute__((vector_size(kBytes)));
constexpr size_t kLanes = kBytes / sizeof(float);

// Without it the scheduler may leave two threads on one core for the whole of a short measurement.
void pin_to_core(int index) {
#if defined(__linux__)
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return set;
  }();
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed) || index-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
#endif
}

// Seconds from the moment all threads are ready until the last is done.
double seconds_on(int threads, const std::function<void(int)>& body) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; i++) {
    pool.emplace_back([&, i] {
      pin_to_core(i);
      ready++;
      while (!go) std::this_thread::yield();
      body(i);
    });
  }
  while (ready < threads) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  go = true;
  for (std::thread& thread : pool) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Enough independent chains to hide the latency of a multiply-add, few enough for the registers.
constexpr int kChains = kBytes == 64 ? 24 : 12;

void multiply_add(int64_t steps) {
  Vector sum[kChains] = {};
  Vector factor = Vector{} + 0.999f, addend = Vector{} + 1e-6f;
  asm volatile("" : "+m"(factor), "+m"(addend));
  const Vector x = factor, y = addend;
  for (int64_t i = 0; i < steps; i++) {
#pragma GCC unroll 32
    for (int c = 0; c < kChains; c++) sum[c] = sum[c] * x + y;
  }
  asm volatile("" : : "m"(sum));
}

void stream_copy(float* to, const float* from, size_t count) {
#if defined(__AVX512F__)
  for (size_t i = 0; i < count; i += 16) _mm512_stream_ps(to + i, _mm512_load_ps(from + i));
  _mm_sfence();
#elif defined(__AVX__)
  for (size_t i = 0; i < count; i += 8) _mm256_stream_ps(to + i, _mm256_load_ps(from + i));
  _mm_sfence();
#else
  std::memcpy(to, from, count * sizeof(float));
#endif
}

// Stores that go through the caches; memcpy would change over to streaming ones by itself.
void plain_copy(float* to, const float* from, size_t count) {
  for (size_t i = 0; i < count; i += 4 * kLanes) {
    Vector part[4];
    std::memcpy(part, from + i, sizeof part);
    std::memcpy(to + i, part, sizeof part);
    asm volatile("" : : : "memory");
  }
}

void read_all(const float* from, size_t count) {
  Vector sum[8] = {};
  for (size_t i = 0; i < count; i += 8 * kLanes) {
    for (size_t c = 0; c < 8; c++) {
      Vector part;
      std::memcpy(&part, from + i + c * kLanes, sizeof part);
      sum[c] += part;
    }
  }
  asm volatile("" : : "m"(sum));
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  constexpr size_t kCount = size_t{1} << 24;  // 64 MiB for each thread and array
  constexpr int kRounds = 7;
  constexpr int64_t kSteps = 1'000'000;
  std::vector<float*> from, to;
  for (int i = 0; i < threads; i++) {
    for (auto* list : {&from, &to}) {
      auto* data = static_cast<float*>(std::aligned_alloc(1 << 21, kCount * sizeof(float)));
#if defined(__linux__)
      madvise(data, kCount * sizeof(float), MADV_HUGEPAGE);
#endif
      std::memset(data, 0, kCount * sizeof(float));
      list->push_back(data);
    }
  }
  const auto best = [&](const std::function<void(int)>& body) {
    double seconds = 1e9;
    for (int round = 0; round < kRounds; round++)
      seconds = std::min(seconds, seconds_on(threads, body));
    return seconds;
  };
  const double fma = best([](int) { multiply_add(kSteps); });
  const double streamed = best([&](int i) { stream_copy(to[i], from[i], kCount); });
  const double plain = best([&](int i) { plain_copy(to[i], from[i], kCount); });
  const double read = best([&](int i) { read_all(from[i], kCount); });
  const double bytes = static_cast<double>(threads) * kCount * sizeof(float);
  std::printf("%.2f %.2f %.2f\n", 2.0 * threads * kChains * kLanes * kSteps / fma / 1e9,
              2 * bytes / std::min(streamed, plain) / 1e9, bytes / read / 1e9);
}
