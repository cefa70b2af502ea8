// Devices for tests: in round numbers, where a multiply-add takes a second.
#pragma once

#include "npu/host/machine.h"
#include "vm/target.h"

namespace dvm::testing {

constexpr double kVectorElement = 8;  // seconds

inline Costs plain_costs() {
  constexpr double kElementBytes = 4;
  Costs costs;
  costs.multiply_adds = 1;
  costs.vector_elements = 1 / kVectorElement;
  costs.epilogue_elements = 1.0 / 6;
  costs.pack_elements = 1.0 / 8;
  costs.split_multiply_adds = 2;
  costs.split_a_elements = costs.split_b_elements = 1.0 / 4;
  costs.private_read = costs.private_write = kElementBytes / 2;
  costs.direct_read = kElementBytes;
  costs.shared_read = kElementBytes / 4;
  costs.memory_read = costs.memory_write = costs.memory_stream = kElementBytes / 8;
  costs.core_transfer = kElementBytes / 40;
  costs.memory_latency = 6000;
  costs.memory_run = 2048;
  costs.block_start = 1500;
  costs.run_start = costs.block_start / 8;
  costs.pass_start = 1024;
  costs.least_rows = 4;
  costs.set_conflict = 0.005;
  costs.late_core = 0.08;
  costs.beside_products = costs.unannounced = 0.5;
  costs.runs_apart = 2;
  costs.windows_apart = 6;
  costs.in_flight = 10;
  costs.in_flight_packing = 30;
  return costs;
}

// In order, with joined instructions, and starts that take no time.
inline Target plain_target() {
  Target target;
  target.name = "plain";
  target.cores = 1;
  target.line_bytes = target.vector_bytes = 64;
  target.way_bytes = 4096;
  target.ways = 8;
  target.first_bytes = 32 << 10;
  target.private_bytes = 1 << 20;
  target.matmul_nr = 32;
  target.matmul_mr = 14;
  target.dot_rows = 4;
  target.queues = target.places = 1;
  target.unified_memory = target.computes_bytes = target.joins = target.fetches = true;
  target.costs = plain_costs();
  return target;
}

// As many queues as there are pipes, flags to order them by, and no hints.
inline void run_pipes(Target& target, int64_t event_flags) {
  target.queues = 4;
  target.places = 2;
  target.event_flags = event_flags;
  target.joins = target.fetches = false;
}

inline Machine plain_machine() {
  return {"plain", {32 << 10, 8, 64, 1 << 20, 32 << 20}, plain_costs()};
}

}  // namespace dvm::testing
