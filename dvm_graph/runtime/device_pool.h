// Devices, shared by all models of the process that ask for the same one, so that several
// models do not fight over the cores with threads of their own. A forked child has devices of its
// own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "npu/device.h"
#include "npu/host/machine.h"
#include "npu/simulator/flag_audit.h"
#include "npu/simulator/part.h"
#include "npu/simulator/queues.h"
#include "vm/target.h"

namespace dvm {

struct SimulatedPart {
  Target target;
  NpuPart part;
  QueueRun queues = QueueRun::in_order;
  std::shared_ptr<FlagLedger> ledger = std::make_shared<FlagLedger>();
};

struct DeviceRequest {
  int cores = 0;            // 0: as many as this process may use
  std::string simd;         // empty: the best level the CPU has
  int64_t local_bytes = 0;  // 0: the device's own choice
  Machine machine;          // what the cores are like
  bool spins = true;        // idle cores spin for a while before they park
  // Not null: instead of the host, a part that is computed for its values (npu/simulator).
  std::shared_ptr<const SimulatedPart> part = {};
  int lane = 0;  // requests for others are given cores of their own

  auto operator<=>(const DeviceRequest&) const = default;
};

// A device and the lock that whoever submits to it holds.
struct SharedDevice {
  SharedDevice(DeviceRequest made_for, std::unique_ptr<Device> made)
      : request(std::move(made_for)), device(std::move(made)) {}

  const DeviceRequest request;  // complete: it gives the same device again
  std::atomic<int> runs{0};     // of models, at hand
  std::mutex mutex;
  const std::unique_ptr<Device> device;
};

// How many lanes the CPUs that this process may use have the cores for; 1 of a simulated part.
int lanes_of(const DeviceRequest& request);

// Throws std::invalid_argument for a level that this CPU or build does not have, OutOfMemoryError
// where the system starts no more threads.
std::shared_ptr<SharedDevice> shared_device(DeviceRequest request);

}  // namespace dvm
