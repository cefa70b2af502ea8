// A tensor of a stream: in memory, a number, or the result of an operator that still waits in the
// buffer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "stream/graph.h"

namespace dvm::stream {

struct Value {
  DType dtype = DType::f32;
  Shape shape;
  // In memory, contiguous:
  std::byte* data = nullptr;
  std::shared_ptr<void> memory;
  // A number of rank 0, which lies in `number`:
  bool constant = false;
  double scalar = 0;
  int64_t integer = 0;
  alignas(8) std::byte number[8] = {};
  // In the buffer of a stream: guarded by its lock.
  const void* stream = nullptr;
  int32_t pending = -1;      // operator
  std::exception_ptr error;  // of the flush that should have computed it

  std::atomic<int32_t> handles{0};  // of who may want it

  int64_t bytes() const { return shape.elements() * static_cast<int64_t>(size_of(dtype)); }
};
using ValueRef = std::shared_ptr<Value>;

// "float32 [2, 3]"
std::string text_of(const Value& value);

// Numbers of a dtype; false: it cannot hold them.
bool set_number(Value& value, double number);
bool set_number(Value& value, int64_t number);

}  // namespace dvm::stream
