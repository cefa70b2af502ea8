// What the run-time compiler knows about a device: what it can do, and what that costs. Every field
// is a row of target.def, with its unit. A device (npu/) fills it in; the compiler's choices are
// closed forms over it, and nothing in vm/ knows a number of one machine.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "kernels/numbers.h"
#include "kernels/plan.h"
#include "vm/isa.h"
#include "vm/splitting.h"

namespace dvm {

// Bytes, of values in local memory and in workspaces: as wide as the widest vector of any device.
inline constexpr int64_t kAlignment = 64;
constexpr int64_t aligned(int64_t bytes) { return ceil_div(bytes, kAlignment) * kAlignment; }

// All of them positive once a device has filled them in, but for what it does not do.
struct Costs {
#define DVM_COST(name, unit, least, most, meaning) double name = 0;
#include "vm/target.def"

  auto operator<=>(const Costs&) const = default;

  // Seconds in multiply-adds, and in elements of a vector kernel: the units in which blocks of
  // products and tiles of vector kernels are compared.
  double in_multiply_adds(double seconds) const { return seconds * multiply_adds; }
  double in_vector_elements(double seconds) const { return seconds * vector_elements; }
  // Multiply-adds in the time that an f32 element takes at so many bytes per second.
  double per_element(double bytes_per_second) const {
    return multiply_adds * kElementBytes / bytes_per_second;
  }

 private:
  static constexpr double kElementBytes = 4;
};

struct Target {
  const char* name = "";
#define DVM_SIZE(name, unit, least, most, meaning) int64_t name = 0;
#define DVM_FLAG(name, meaning)                    bool name = false;
#include "vm/target.def"
  Costs costs;
  Splitting splitting;  // of floats, many rows by many columns, where that is faster
  // Besides register dtypes, those of 16 bits in which the vector unit does an instruction: bits of
  // dtype_list by family. Where it casts there and back, values of the dtype lie in local memory as
  // they are stored; where it copies, those of which nothing is computed do (vm/pairs.h).
  std::array<uint16_t, kFamilies> computes_in = {};
  // Of a vector instruction, for as many bytes of results as the unit gives in a cycle.
  std::array<double, kFamilies> cycles = {};

  bool computes(Family family, DType dtype) const {
    return (computes_in[static_cast<size_t>(family)] & dtype_list::bit(dtype)) != 0;
  }
  bool holds(DType dtype) const { return computes(Family::v_cast_to_f32, dtype); }
  bool in_order() const { return queues <= 1; }
  // The cube unit has local memories of its own, from L1 to its sums.
  bool has_cube_memories() const { return l1_bytes > 0; }
  int64_t cores_of(KernelKind kind) const {
    return kind == KernelKind::vector || cube_cores == 0 ? cores : cube_cores;
  }
  int64_t memory_bytes(Memory memory) const {
    const int64_t sizes[] = {local_bytes, l1_bytes, l0a_bytes, l0b_bytes, l0c_bytes, bias_bytes};
    return sizes[static_cast<int>(memory)];
  }
  // Offsets in local memory count through all of them.
  int64_t memory_begin(Memory memory) const {
    int64_t begin = 0;
    for (int m = 0; m < static_cast<int>(memory); ++m)
      begin += memory_bytes(static_cast<Memory>(m));
    return begin;
  }
  int64_t memory_end() const { return memory_begin(Memory::bias) + bias_bytes; }
  // Stores of a value of this size bypass the caches.
  bool streams(int64_t bytes) const { return stream_bytes > 0 && bytes >= stream_bytes; }
};

}  // namespace dvm
