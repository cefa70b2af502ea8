// Which CPUs the threads of a host device run on.
//
// Workers keep off the CPU of the calling thread. Left alone, a scheduler often wakes a thread
// where the waker runs, above all in virtual machines, whose idle CPUs look taken; both would then
// share that CPU for milliseconds.
//
// Where other work on the machine takes a CPU away, often for milliseconds, from a thread that
// others wait for, one of these gives up its own CPU for it. A thread that may run and does not is
// known by its CPU time, which stands still.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

namespace dvm {

class Placement {
 public:
  // CPUs: those of the calling thread, if there is one for each core.
  explicit Placement(int cores);

  void add(std::thread& worker);

  // By the caller.
  void keep_off_caller();          // whatever was known before
  void follow_caller();            // the same, if it is another one or has moved since then
  bool bring_here(size_t worker);  // one that has not run since the last time; true: it will run

  // By a worker that waits for the caller, which is in a stage: brings it here if it has not run
  // since a worker asked last. True: this thread is to sleep, so that the caller can run.
  bool bring_caller_here();

 private:
  // Has a thread run since the last time?
  class Watch {
   public:
    void begin(clockid_t clock) { clock_ = clock; }
    bool stood_still();

   private:
    clockid_t clock_ = CLOCK_MONOTONIC;  // never stands still
    int64_t ran_ = -1;
  };

  struct Worker {
    pthread_t thread;
    Watch watch;
  };

  const int cores_;
  const pid_t process_;  // in which the workers run
  std::vector<Worker> workers_;
  cpu_set_t allowed_;    // CPUs that workers may use; empty: they run where they like
  int kept_off_ = -1;    // where the workers do not run; -1: nowhere in particular
  int caller_cpu_ = -1;  // where the caller ran last

  std::mutex mutex_;  // of what follows
  pid_t caller_ = -1;
  Watch caller_watch_;
};

}  // namespace dvm
