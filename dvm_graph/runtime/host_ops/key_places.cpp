// Numbers of keys, which are int64 or floats, by a search among them.
//
//   KeyPlaces   whether others are refused. Operands: x; keys of its type in ascending order,
//   without
//               NaN; int64, a number for each key, for all others, and for NaN.
#include <algorithm>
#include <cmath>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"

namespace dvm {
namespace {

template <class T>
void places(HostFrame& frame) {
  const std::vector<int64_t>& shape = frame.operand(0).shape;
  const auto* const x = frame.data<T>(0);
  const auto* const keys = frame.data<T>(1);
  const auto* const numbers = frame.data<int64_t>(2);
  const int64_t count = elements_of(frame.operand(1).shape);
  if (elements_of(frame.operand(2).shape) != count + 2 ||
      frame.operand(1).dtype != frame.operand(0).dtype) {
    throw CompileError(frame.name + " has other numbers than keys");
  }
  const int64_t other = numbers[count];
  const bool refuses = frame.argument(0) != 0;
  auto* const out = frame.give<int64_t>(0, DType::i64, shape);
  for (int64_t i = 0; i < elements_of(shape); i++) {
    int64_t number = other;
    if (x[i] != x[i]) {
      number = numbers[count + 1];
    } else {
      const T* const found = std::lower_bound(keys, keys + count, x[i]);
      if (found != keys + count && *found == x[i]) number = numbers[found - keys];
    }
    if (refuses && number == other) throw ExecutionError(frame.name + ": a key is not known");
    if (out != nullptr) out[i] = number;
  }
}

}  // namespace

void key_places(HostFrame& frame) {
  switch (frame.operand(0).dtype) {
    case DType::f32: return places<float>(frame);
    case DType::f64: return places<double>(frame);
    case DType::i64: return places<int64_t>(frame);
    default: throw CompileError(frame.name + " has keys of another type");
  }
}

}  // namespace dvm
