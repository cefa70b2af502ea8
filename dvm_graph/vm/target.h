// What the run-time compiler knows about a device. A device spec (npu/) fills it in.
#pragma once

#include <cstdint>

namespace dvm {

struct Target {
  const char* name = "host";
  int cores = 1;
  int64_t local_bytes = 0;        // local memory of one core, per program
  int64_t vector_tile_bytes = 0;  // preferred live bytes of a vector tile (host: about L1/L2)
  int64_t stream_bytes = 0;       // values from this size on bypass the caches when stored; 0: none
  int vector_bytes = 64;          // alignment and width of a vector instruction
  bool unified_memory = true;     // instructions may read and write global memory directly
  int event_flags = 0;            // 0: the core executes in order, no synchronisation needed
  int matmul_nr = 32;             // panel width of B, f32
  int matmul_mr = 14;
  int matmul_rows = 0;       // preferred rows of a cube tile (multiple of mr)
  int matmul_k_block = 0;    // preferred depth of one matmul instruction
  double tile_overhead = 0;  // cost of starting a tile, in vector elements
  double stage_overhead =
      0;  // cost of one more stage: the barrier of the cores, in vector elements

  // Stores of a value of this size bypass the caches.
  bool streams(int64_t bytes) const { return stream_bytes > 0 && bytes >= stream_bytes; }
};

}  // namespace dvm
