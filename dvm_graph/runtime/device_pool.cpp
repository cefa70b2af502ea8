#include "runtime/device_pool.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>

#include "npu/host/device.h"
#include "npu/host/levels.h"
#include "npu/host/process.h"
#include "npu/simulator/value_device.h"
#include "runtime/errors.h"

namespace dvm {

namespace {

// The best level; for a part, the best whose panels are as wide as the part's, if there is one:
// what is compiled for it then hangs on no machine.
const InstructionTable& usual_table(const DeviceRequest& request) {
  if (request.part != nullptr) {
    for (const Level& level : available_levels()) {
      if (level.table->matmul_nr == request.part->target.matmul_nr) return *level.table;
    }
  }
  return best_table();
}

// A model's own: it has no threads to share.
std::shared_ptr<SharedDevice> part_device(const DeviceRequest& request,
                                          const InstructionTable& table) {
  Target target = request.part->target;
  // What the cube unit of the part does not do is left to instructions as this table has them.
  target.matmul_nr = table.matmul_nr;
  return std::make_shared<SharedDevice>(
      request, std::make_unique<ValueDevice>(target, request.part->part, table,
                                             request.part->queues, request.part->ledger));
}

}  // namespace

int lanes_of(const DeviceRequest& request) {
  return request.part != nullptr ? 1 : std::max(available_cores() / std::max(request.cores, 1), 1);
}

std::shared_ptr<SharedDevice> shared_device(DeviceRequest request) {
  if (request.cores <= 0) request.cores = available_cores();
  if (request.simd.empty()) request.simd = usual_table(request).name;
  const InstructionTable* table = table_by_name(request.simd);
  if (table == nullptr) {
    throw std::invalid_argument("no instruction-set level '" + request.simd + "' on this machine");
  }
  if (request.part != nullptr) return part_device(request, *table);
  static std::map<std::pair<uint32_t, DeviceRequest>, std::weak_ptr<SharedDevice>> devices;
  const std::lock_guard lock(whole_at_fork());
  std::weak_ptr<SharedDevice>& known = devices[{process_generation(), request}];
  if (std::shared_ptr<SharedDevice> device = known.lock()) return device;
  Target target = host_target(request.cores, *table, request.machine);
  if (request.local_bytes > 0) {
    // Vector tiles are sized to this machine's caches; the local memory asked for may be smaller.
    target.local_bytes = request.local_bytes;
    target.vector_tile_bytes = std::min(target.vector_tile_bytes, request.local_bytes);
  }
  HostDeviceOptions options;
  if (!request.spins) options.spin = std::chrono::microseconds(0);
  try {
    auto device = std::make_shared<SharedDevice>(
        request, std::make_unique<HostDevice>(request.cores, *table, target, options));
    known = device;
    return device;
  } catch (const std::system_error&) {
    throw OutOfMemoryError("the system does not start threads for " +
                           std::to_string(request.cores) + " cores");
  }
}

}  // namespace dvm
