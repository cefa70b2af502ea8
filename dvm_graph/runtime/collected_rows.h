// What a loop collects, a row a turn: into memory for all of them where their number is known, else
// into memory that grows by half.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/output_pool.h"
#include "runtime/tensor.h"

namespace dvm {

// A collected tensor while its rows come.
struct CollectedRows {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // of a row
  int64_t row_bytes = 0, capacity = 0;
  std::shared_ptr<void> memory;
  bool backward = false;
  OutputPool* pool = nullptr;

  std::byte* at(int64_t row) const {
    const int64_t place = backward ? capacity - 1 - row : row;
    return static_cast<std::byte*>(memory.get()) + place * row_bytes;
  }

  // Room for one more row behind `count`; of `most` if all of them will come, else of as many at
  // most. Room that is outgrown is no result: the pool would keep each size of it.
  void grow(int64_t count, int64_t most, bool all, const std::string& name);

  // The first row says what the others are like.
  void begin(const Tensor& row, int64_t most, bool all, const std::string& name);

  // No row came.
  void begin_empty(DType of, std::vector<int64_t> row_shape, const std::string& name);

  // Where the row is to be stored.
  void put_place(int64_t row, Tensor& place) const {
    if (place.owner != memory) place = {dtype, shape, nullptr, memory};
    place.data = at(row);
  }

  Tensor finish(int64_t count);
};

}  // namespace dvm
