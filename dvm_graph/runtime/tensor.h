// A tensor that crosses the border of the executor: an input, an output, or a vendor's result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace dvm {

struct Tensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;   // contiguous, row-major
  std::byte* data = nullptr;    // null: absent
  std::shared_ptr<void> owner;  // keeps `data` alive, where somebody has to; for an opaque
                                // value (strings, sequences) the thing itself, without data

  bool absent() const { return data == nullptr && owner == nullptr; }
};

// For messages: "[2, 3]".
inline std::string shape_text(std::span<const int64_t> shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

}  // namespace dvm
