// Held by one run at a time. In a forked child it is free, whoever held it in the parent.
#pragma once

#include <atomic>
#include <cstdint>

#include "npu/host/process.h"

namespace dvm {

class RunLock {
 public:
  // False: another run of this process holds it.
  bool try_take() {
    uint32_t holder = holder_.load(std::memory_order_relaxed);
    do {
      if (holder == me()) return false;
    } while (!holder_.compare_exchange_weak(holder, me(), std::memory_order_acquire,
                                            std::memory_order_relaxed));
    return true;
  }

  // By who took it. If the process was forked meanwhile, somebody else may hold it here.
  void release(uint32_t taken_in) {
    uint32_t holder = taken_in + 1;
    holder_.compare_exchange_strong(holder, 0, std::memory_order_release,
                                    std::memory_order_relaxed);
  }

 private:
  static uint32_t me() { return process_generation() + 1; }

  std::atomic<uint32_t> holder_{0};  // 0: nobody; else the generation of the process and 1
};

}  // namespace dvm
