// A loop while its turns go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/collected_rows.h"
#include "runtime/growing_states.h"
#include "runtime/tensor.h"

namespace dvm {

struct LoopState {
  int64_t turn = 0, most = 0;
  bool goes_on = true;
  std::span<const Tensor> scanned;
  std::vector<Tensor> operands;  // of the body
  std::vector<Tensor> spare;     // by state: the other one of its two places
  std::vector<CollectedRows> rows;
  std::vector<GrowingPlace> growing;
  std::vector<char> spent;    // by operand of the body: it is a state
  std::vector<Tensor> given;  // memory for results of the body

  bool is_over() const { return turn >= most || !goes_on; }
  std::byte* row_of(size_t scan, int64_t at, bool backward, int64_t row_bytes) const {
    return scanned[scan].data + (backward ? most - 1 - at : at) * row_bytes;
  }
};

// What a run of a body knows of the loop that it is a turn of.
struct LoopTurn {
  std::span<GrowingPlace> growing = {};
  std::span<const char> spent = {};
  int64_t number = 0;
};

}  // namespace dvm
