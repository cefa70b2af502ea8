#include "npu/host/placement.h"

#include <pthread.h>

#include <utility>

#include "npu/host/process.h"

namespace dvm {

bool Placement::Worker::stood_still() {
  timespec time;
  if (clock_gettime(clock, &time) != 0) return false;
  const int64_t ran = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  return std::exchange(ran_ns, ran) == ran;
}

Placement::Placement(int cores) : cores_(cores), process_(process_generation()) {
  if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0 || CPU_COUNT(&allowed_) < cores) {
    CPU_ZERO(&allowed_);
  }
}

void Placement::add(std::thread& worker) {
  Worker& added = workers_.emplace_back();
  added.thread = worker.native_handle();
  if (pthread_getcpuclockid(added.thread, &added.clock) != 0) added.clock = CLOCK_MONOTONIC;
}

void Placement::keep_off_caller() {
  const int cpu = sched_getcpu();
  if (cpu == kept_off_ || cpu < 0 || cpu >= CPU_SETSIZE) return;
  // The process may have been given other CPUs. A caller that is confined to fewer than there are
  // cores says nothing about the workers.
  cpu_set_t now;
  if (sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) >= cores_) allowed_ = now;
  // The handles of threads that fork() left behind may stand for the caller, or for others.
  if (!CPU_ISSET(cpu, &allowed_) || process_generation() != process_) return;
  kept_off_ = cpu;
  cpu_set_t others = allowed_;
  CPU_CLR(cpu, &others);
  for (const Worker& worker : workers_) {
    pthread_setaffinity_np(worker.thread, sizeof others, &others);
  }
}

bool Placement::bring_here(size_t worker) {
  const int cpu = sched_getcpu();
  if (!workers_[worker].stood_still() || kept_off_ < 0 || cpu < 0) return false;
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(cpu, &here);
  if (pthread_setaffinity_np(workers_[worker].thread, sizeof here, &here) != 0) return false;
  kept_off_ = -1;  // it leaves again before the next stage
  return true;
}

}  // namespace dvm
