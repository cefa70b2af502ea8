#include "npu/host/process.h"

#include <pthread.h>

#include <atomic>

namespace dvm {
namespace {

std::atomic<uint32_t> generation{0};
std::mutex mutex;

[[maybe_unused]] const int registered =
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                   [] {
                     generation.fetch_add(1, std::memory_order_relaxed);
                     mutex.unlock();
                   });

}  // namespace

uint32_t process_generation() { return generation.load(std::memory_order_relaxed); }

std::mutex& whole_at_fork() { return mutex; }

}  // namespace dvm
