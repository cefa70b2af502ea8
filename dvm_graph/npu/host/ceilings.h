// How fast this machine can be: what no kernel can beat, measured.
#pragma once

#include <cstdint>
#include <vector>

#include "npu/host/levels.h"
#include "npu/host/together.h"

namespace dvm {

struct Ceilings {
  double flops = 0;       // f32 multiply-adds, two operations each, per second
  double copy_bytes = 0;  // read and written by copies between memory and memory, per second
  double read_bytes = 0;  // read from memory, per second
};

// Measures over so many cores at once, a thread pinned to each, with the instructions of an
// available level. Holds 256 MiB and more, which no cache can.
class CeilingMeter {
 public:
  CeilingMeter(int cores, const InstructionTable& table);
  CeilingMeter(const CeilingMeter&) = delete;

  // The best of a few tries of each, some fifty milliseconds in all. Other work on the machine
  // makes it less.
  Ceilings measure();

 private:
  const Limits& limits_;
  int64_t count_;                          // elements of a buffer
  std::vector<MeasuredBuffer> from_, to_;  // of each core
};

}  // namespace dvm
