// Sequences and optional values, as the executor passes them on: the contents of opaque values.
//
// A sequence shares its tensors with the sequences that it was made from, and with those made from
// it: nobody changes a tensor that is in one. Each owns its memory.
#pragma once

#include <memory>
#include <vector>

#include "runtime/tensor.h"

namespace dvm {

using Sequence = std::vector<std::shared_ptr<const Tensor>>;

// A value that is a sequence.
inline Tensor tensor_of(Sequence sequence) {
  return {
      DType::u8, {}, nullptr, std::make_shared<Sequence>(std::move(sequence)), ValueKind::sequence};
}

// Null where the value is none.
inline const Sequence* sequence_in(const Tensor& value) {
  return value.kind == ValueKind::sequence ? static_cast<const Sequence*>(value.owner.get())
                                           : nullptr;
}

// An optional value that holds nothing.
inline Tensor no_value() { return {DType::u8, {}, nullptr, nullptr, ValueKind::none}; }

}  // namespace dvm
