// For whom the caller gives up its CPU: threads that sleep stand for those that other work keeps
// from running, for neither uses CPU time.
#include "npu/host/placement.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "check.h"

namespace dvm::test {
namespace {

cpu_set_t affinity_of(pthread_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CHECK(pthread_getaffinity_np(thread, sizeof set, &set) == 0);
  return set;
}

cpu_set_t without(cpu_set_t set, int cpu) {
  CPU_CLR(cpu, &set);
  return set;
}

// Where the calling thread is from now on.
int stay() {
  const int cpu = sched_getcpu();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  return sched_getcpu();
}

// A thread that sleeps but while it is told to run.
class Sleeper {
 public:
  Sleeper() : thread_([this] { live(); }) {}
  ~Sleeper() {
    tell(2);
    thread_.join();
  }
  std::thread& thread() { return thread_; }

  // Returns when it has run since.
  void run() {
    const int before = runs_;
    asleep_ = false;
    tell(1);
    while (runs_ == before) std::this_thread::yield();
  }
  void sleep() {
    tell(0);
    while (!asleep_) std::this_thread::yield();
    // It may still be on its way.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

 private:
  void tell(int wish) {
    wish_ = wish;
    wish_.notify_all();
  }
  void live() {
    for (int wish; (wish = wish_) != 2;) {
      runs_++;
      if (wish == 1) continue;
      asleep_ = true;
      wish_.wait(0);
    }
  }

  std::atomic<int> wish_{0}, runs_{0};
  std::atomic<bool> asleep_{false};
  std::thread thread_;
};

// The caller gives up its CPU for a worker that does not run, until the next stage.
void test_bringing_a_worker(const cpu_set_t& all) {
  context = "a worker is brought";
  Placement placement(2);
  Sleeper worker;
  placement.add(worker.thread());
  const pthread_t handle = worker.thread().native_handle();
  const auto is_kept_off = [&] {
    int caller;
    do {
      caller = sched_getcpu();
      placement.keep_off_caller();
    } while (sched_getcpu() != caller);
    const cpu_set_t expected = without(all, caller), now = affinity_of(handle);
    return CPU_EQUAL(&now, &expected) != 0;
  };
  CHECK(is_kept_off());
  for (int i = 0; i < 20; i++) {
    worker.run();
    CHECK(!placement.bring_here(0));
  }
  worker.sleep();
  placement.bring_here(0);  // it has run since the last time
  const int cpu = stay();
  CHECK(placement.bring_here(0));
  const cpu_set_t now = affinity_of(handle);
  CHECK(CPU_COUNT(&now) == 1 && CPU_ISSET(cpu, &now));
  CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
  CHECK(is_kept_off());
}

// With fewer CPUs than cores workers run where they like, and stay there.
void test_too_few_cpus(const cpu_set_t& all) {
  context = "too few CPUs";
  Placement placement(CPU_COUNT(&all) + 1);
  Sleeper worker;
  placement.add(worker.thread());
  placement.keep_off_caller();
  worker.sleep();
  for (int i = 0; i < 3; i++) CHECK(!placement.bring_here(0));
  const cpu_set_t now = affinity_of(worker.thread().native_handle());
  CHECK(CPU_EQUAL(&now, &all));
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) == 0 && CPU_COUNT(&all) >= 2) {
    test_bringing_a_worker(all);
    test_too_few_cpus(all);
  }
  return report("placement");
}
