#include "runtime/bindings_calls.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <utility>

namespace nb = nanobind;

namespace dvm {
namespace {

constexpr int64_t kFirstLookNs = 100'000'000, kNextLookNs = 50'000'000;

// Changed with the interpreter lock held.
std::atomic<bool> exiting{false};
std::atomic<int> calls{0};
thread_local int calls_inside = 0;  // of this thread

// That of Python: after a fork, too.
bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

// The interpreter is about to shut down, and this thread is in no call.
bool ends_here() {
  return exiting.load(std::memory_order_relaxed) && calls_inside == 0 && !is_main_thread();
}

[[noreturn]] void sleep() {
  nb::set_leak_warnings(false);  // what this thread holds, it holds for ever
  const nb::gil_scoped_release forever;
  for (;;) pause();
}

// Exact to a few milliseconds, for the price of a load.
int64_t rough_now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Call::Call() {
  if (ends_here()) sleep();
  calls_inside++;
  calls.fetch_add(1, std::memory_order_relaxed);
}

void Call::stay_at_exit() {
  if (calls_inside > 1) return;
  calls_inside--;
  if (ends_here()) {
    calls.fetch_sub(1, std::memory_order_relaxed);
    sleep();
  }
  calls_inside++;
}

Call::~Call() {
  calls.fetch_sub(1, std::memory_order_relaxed);
  calls_inside--;
}

RunInterruption::RunInterruption(const StopFlag* flag)
    : flag_(flag), next_look_ns_(rough_now_ns() + kFirstLookNs) {}

RunInterruption::~RunInterruption() {
  if (by_signal_) PyErr_SetInterrupt();
}

bool RunInterruption::requested() noexcept {
  if (requested_) return true;
  if (flag_ != nullptr && flag_->set.load(std::memory_order_relaxed)) return requested_ = true;
  const int64_t now = rough_now_ns();
  if (now < next_look_ns_ && !exiting.load(std::memory_order_relaxed)) return false;
  next_look_ns_ = now + kNextLookNs;
  if (!is_main_thread()) return requested_ = exiting.load(std::memory_order_relaxed);
  const nb::gil_scoped_acquire lock;
  return requested_ = by_signal_ = PyOS_InterruptOccurred() != 0;
}

bool RunInterruption::by_signal() {
  if (!std::exchange(by_signal_, false)) return false;
  PyErr_SetInterrupt();
  return true;
}

void end_calls(double seconds) {
  exiting.store(true, std::memory_order_relaxed);
  const nb::gil_scoped_release unlock;
  for (double waited = 0; waited < seconds && calls.load(std::memory_order_relaxed) > 0;) {
    constexpr double kStep = 0.001;
    usleep(1000);
    waited += kStep;
  }
}

}  // namespace dvm
