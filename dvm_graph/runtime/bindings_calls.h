// Calls from Python that let go of the interpreter lock: what else may end them, and how they come
// back.
//
// * A run may be ended by a flag (StopFlag), and by Ctrl-C where the main thread runs it. Signals
// are
//   looked for when a run has taken a while, and again and again from then on: shorter runs pay
//   nothing, and Python runs its handlers behind them. No handler runs in the middle of a run.
// * Python ends a thread that asks for the lock while the interpreter shuts down, by an exception
// that
//   C++ must not hold up. So before it shuts down, `end_calls` ends the runs of other threads; a
//   thread that comes back from one then, or begins one, sleeps until the process ends.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>

#include "npu/device.h"

namespace dvm {

// Set by any thread to end runs; see Model.run.
struct StopFlag {
  std::atomic<bool> set{false};
};

// A call that may let go of the lock, from its beginning to its end.
class Call {
 public:
  Call();
  ~Call();
  // At exit, a thread whose outermost call this is does not come back.
  void stay_at_exit();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

// Who may end a run: looked at by the thread that runs it.
class RunInterruption final : public Interruption {
 public:
  explicit RunInterruption(const StopFlag* flag);
  // Ctrl-C that was taken notice of, but told nobody, is raised again.
  ~RunInterruption();
  RunInterruption(const RunInterruption&) = delete;
  RunInterruption& operator=(const RunInterruption&) = delete;

  bool requested() noexcept override;

  // Whether it was Ctrl-C, to whose handler the caller now has to listen.
  bool by_signal();

 private:
  const StopFlag* const flag_;
  int64_t next_look_ns_;
  bool requested_ = false, by_signal_ = false;
};

// At exit: ends the calls of other threads, and waits for that, but not for longer than `seconds`.
void end_calls(double seconds);

}  // namespace dvm
