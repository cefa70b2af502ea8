// Numbers of keys, which are int64 or floats, by a search among them.
//
//   KeyPlaces   whether others are refused. Operands: x; keys of its type in ascending order,
//   without
//               NaN; int64, a number for each key, for all others, and for NaN.
#include <atomic>
#include <bit>

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
  const auto number_of = [&](T key) {
    if (key != key) return numbers[count + 1];
    if (count == 0) return other;
    const T* first = keys;  // of those left, none before which is the key
    for (int64_t left = count; left > 1;) {
      const int64_t half = left / 2;
      first += first[half - 1] < key ? half : 0;
      left -= half;
    }
    return *first == key ? numbers[first - keys] : other;
  };
  auto* const out = frame.give<int64_t>(0, DType::i64, shape);
  const bool refuses = frame.argument(0) != 0;
  std::atomic<bool> refused{false};
  const int64_t steps = std::bit_width(static_cast<uint64_t>(count)) + 1;
  frame.spread(elements_of(shape), steps, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t number = number_of(x[i]);
      if (refuses && number == other) refused.store(true, std::memory_order_relaxed);
      if (out != nullptr) out[i] = number;
    }
  });
  if (refused) throw ExecutionError(frame.name + ": a key is not known");
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
