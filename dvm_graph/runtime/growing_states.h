// States of a loop that turns only append to: what a turn makes of one is a copy of it, and behind
// that something else. Such a state stays where it is, in memory that grows by half, and is not
// copied by a kernel that every turn would have to compile for another size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/dims.h"
#include "runtime/model.h"
#include "runtime/output_pool.h"
#include "runtime/tensor.h"

namespace dvm {

struct GrowingState {
  uint32_t from = 0, to = 0;    // values of the body: an input and an output
  uint32_t copy = 0;            // the call that copies the one to where the other begins
  std::vector<DimSlot> behind;  // where what others store begins, in elements

  // Strides of the copy in both that may not be the same, and the extent along them.
  struct Strides {
    DimSlot from, to, extent;
  };
  std::vector<Strides> strides;

  // Whether each element is copied to where it would be if the one lay where the other does, and
  // nothing else is stored there.
  bool grows(const Dims& dims, int64_t elements) const;
};

// Of a body whose states are its inputs from `first_input` and its outputs from `first_output` on.
std::vector<GrowingState> growing_states(const Model& body, size_t states, size_t first_input,
                                         size_t first_output);

// Where such a state lies while the loop goes on.
struct GrowingPlace {
  const GrowingState* state = nullptr;
  std::shared_ptr<void> memory;  // absent: it lies where the loop found it
  int64_t bytes = 0;             // of that

  // Has memory for so many bytes, which begins with what the state is. Half as many more lie behind
  // where they are to be had.
  void hold(const Tensor& before, int64_t wanted, OutputPool& pool, const char* name);
};

}  // namespace dvm
