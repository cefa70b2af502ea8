// A tensor that crosses the border of the executor: an input, an output, or a call's result; or
// what is there of an opaque value, which need not be one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace dvm {

enum class ValueKind : uint8_t {
  tensor,
  sequence,  // runtime/sequence.h
  none,      // an optional value that holds nothing
  texts,     // runtime/texts.h; the shape is that of the strings
  object  // what the executor does not look into: strings, maps; of an array of Python's objects,
          // shape and data are those
};

struct Tensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;   // contiguous, row-major
  std::byte* data = nullptr;    // null: absent
  std::shared_ptr<void> owner;  // keeps `data` alive, where somebody has to; of what is no tensor
                                // the thing itself, without data
  ValueKind kind = ValueKind::tensor;

  bool absent() const { return kind == ValueKind::tensor && data == nullptr && owner == nullptr; }
};

// For messages: "[2, 3]".
inline std::string shape_text(std::span<const int64_t> shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

}  // namespace dvm
