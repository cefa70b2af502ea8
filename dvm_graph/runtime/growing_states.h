// States of a loop whose extents are others in each turn. What turns only append to, so that what
// one makes is a copy of the state and behind that something else, stays where it is, in memory
// that grows by half, and is not copied by a kernel that every turn would have to compile for
// another size. Where it is rows that all grow, there is room behind each of them
// (runtime/spaced_rows.h); so there is behind the rows of a state that each turn makes anew. What a
// turn appends to such a one, to make the next of that, lies where the state does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/dims.h"
#include "runtime/model.h"
#include "runtime/output_pool.h"
#include "runtime/spaced_rows.h"
#include "runtime/tensor.h"

namespace dvm {

struct GrowingState {
  size_t index = 0;           // among the states
  uint32_t from = 0, to = 0;  // values of the body: an input and an output
  bool appended = true;       // false: made anew
  // What is a copy of it and something behind that: what a turn makes of it, or of one made anew,
  // what only this turn reads.
  std::optional<uint32_t> grown;
  uint32_t copy = 0;                 // the call that copies the one to where the other begins
  std::vector<DimSlot> behind;       // where what others store begins, in elements
  const SpacedRows* rows = nullptr;  // of the body: it may have room behind each row
  const SpacedRows* made = nullptr;  // of one made anew: so may what a turn makes of it

  // Strides of the copy in both that may not be the same, and the extent along them.
  struct Strides {
    DimSlot from, to, extent;
  };
  std::vector<Strides> strides;

  // Whether there are several rows in a tensor of such a shape, and there may be room behind them.
  bool may_have_rows(std::span<const int64_t> shape, const Dims& dims) const;

  // Whether each element is copied to where it would be if the one lay where the other does, and
  // nothing else is stored there: rows of so many elements begin so many apart; 0: it is one row.
  bool grows(const Dims& dims, int64_t elements, int64_t apart = 0) const;
};

// Those appended to, and those made anew whose rows may have room. Of a body whose states are its
// inputs from `first_input` and its outputs from `first_output` on.
std::vector<GrowingState> growing_states(const Model& body, size_t states, size_t first_input,
                                         size_t first_output);

// Where such a state lies while the loop goes on.
struct GrowingPlace {
  const GrowingState* state = nullptr;
  std::shared_ptr<void> memory;  // absent: it lies where the loop found it
  int64_t bytes = 0;             // of that
  int64_t apart = 0;             // elements from row to row; 0: it lies as any tensor does
  bool refuses = false;          // turns of this loop are none that rows may have room for

  bool has(const Tensor& tensor) const { return memory != nullptr && tensor.data == memory.get(); }

  // Has memory for so many bytes, which begins with what the state is. Half as many more lie behind
  // where they are to be had.
  void hold(const Tensor& before, int64_t wanted, OutputPool& pool, const char* name);

  // Has memory for rows of so many elements, which begin with those of the state. Behind each lies
  // room for half as many more, where that is to be had. The state lies there from now on.
  void hold_rows(Tensor& before, int64_t elements, OutputPool& pool, const char* name);

  // The state as any tensor lies.
  Tensor closed(const Tensor& state, OutputPool& pool, const char* name) const;

  RowLayout layout_of(const Tensor& state) const;
};

}  // namespace dvm
