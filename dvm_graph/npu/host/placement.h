// Which CPUs the threads of a host device run on.
//
// Workers keep off the CPU of the calling thread. Left alone, a scheduler often wakes a thread
// where the waker runs, above all in virtual machines, whose idle CPUs look taken; both would then
// share that CPU for milliseconds. The scheduler may move the caller, too: they follow before every
// stage.
//
// Where other work on the machine takes its CPU away from a worker, often for milliseconds, while
// the caller waits for its tiles, the caller gives up its own. A thread that may run and does not
// is known by its CPU time, which stands still.
//
// By the caller only, which is never moved itself.
#pragma once

#include <sched.h>

#include <cstdint>
#include <ctime>
#include <thread>
#include <vector>

namespace dvm {

class Placement {
 public:
  // CPUs: those of the calling thread, if there is one for each core.
  explicit Placement(int cores);

  void add(std::thread& worker);

  void keep_off_caller();
  // Moves a worker to the caller's CPU if it has not run since the last time. True: it will run
  // there once the caller sleeps.
  bool bring_here(size_t worker);

 private:
  struct Worker {
    bool stood_still();  // since the last time

    pthread_t thread;
    clockid_t clock;
    int64_t ran_ns = -1;
  };

  const int cores_;
  const uint32_t process_;  // in which the workers run
  std::vector<Worker> workers_;
  cpu_set_t allowed_;  // CPUs that workers may use; empty: they run where they like
  int kept_off_ = -1;  // the caller's, where they do not run; -1: nowhere in particular
};

}  // namespace dvm
