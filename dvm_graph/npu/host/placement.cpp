#include "npu/host/placement.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace dvm {
namespace {

pid_t this_thread() {
  static thread_local const pid_t id = gettid();
  return id;
}

}  // namespace

bool Placement::Watch::stood_still() {
  timespec time;
  if (clock_gettime(clock_, &time) != 0) return false;
  const int64_t ran = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  return std::exchange(ran_, ran) == ran;
}

Placement::Placement(int cores) : cores_(cores), process_(getpid()) {
  if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0 || CPU_COUNT(&allowed_) < cores) {
    CPU_ZERO(&allowed_);
  }
}

void Placement::add(std::thread& worker) {
  Worker& added = workers_.emplace_back();
  added.thread = worker.native_handle();
  clockid_t clock;
  if (pthread_getcpuclockid(added.thread, &clock) == 0) added.watch.begin(clock);
}

void Placement::keep_off_caller() {
  const int cpu = sched_getcpu();
  caller_cpu_ = cpu;
  if (caller_ != this_thread()) {
    const std::lock_guard lock(mutex_);
    caller_ = this_thread();
    clockid_t clock;
    if (pthread_getcpuclockid(pthread_self(), &clock) == 0) caller_watch_.begin(clock);
  }
  if (cpu == kept_off_ || cpu < 0 || cpu >= CPU_SETSIZE) return;
  // The process may have been given other CPUs. A caller that is confined to fewer than there are
  // cores says nothing about the workers.
  cpu_set_t now;
  if (sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) >= cores_) allowed_ = now;
  if (!CPU_ISSET(cpu, &allowed_)) return;
  kept_off_ = cpu;
  // The handles of threads that fork() left behind may stand for the caller, or for others.
  if (getpid() != process_) return;
  cpu_set_t others = allowed_;
  CPU_CLR(cpu, &others);
  for (const Worker& worker : workers_) {
    pthread_setaffinity_np(worker.thread, sizeof others, &others);
  }
}

void Placement::follow_caller() {
  if (sched_getcpu() != caller_cpu_ || caller_ != this_thread()) keep_off_caller();
}

bool Placement::bring_here(size_t worker) {
  const int cpu = sched_getcpu();
  if (!workers_[worker].watch.stood_still() || kept_off_ < 0 || cpu < 0) return false;
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(cpu, &here);
  if (pthread_setaffinity_np(workers_[worker].thread, sizeof here, &here) != 0) return false;
  kept_off_ = caller_cpu_ = -1;  // it leaves again before the next stage
  return true;
}

bool Placement::bring_caller_here() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !caller_watch_.stood_still()) return false;
  const int cpu = sched_getcpu();
  cpu_set_t allowed, here;
  if (cpu < 0 || sched_getaffinity(caller_, sizeof allowed, &allowed) != 0 ||
      !CPU_ISSET(cpu, &allowed)) {
    return false;
  }
  CPU_ZERO(&here);
  CPU_SET(cpu, &here);
  // Moves it at once; it may run anywhere again right away.
  const bool moved = sched_setaffinity(caller_, sizeof here, &here) == 0;
  sched_setaffinity(caller_, sizeof allowed, &allowed);
  return moved;
}

}  // namespace dvm
