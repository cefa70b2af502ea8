// Random operands for instruction tests: shapes with extents around the vector widths, strides the
// instruction set allows, values with every special case of their type.
#pragma once

#include <cmath>
#include <limits>

#include "check.h"
#include "machine.h"

namespace dvm::test {

inline int64_t random_extent(Random& random) {
  constexpr int64_t kExtents[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,  15,
                                  16, 17, 23, 31, 32, 33, 63, 64, 65, 97};
  return random.pick(kExtents);
}

inline Shape random_shape(Random& random) {
  constexpr int64_t kOuter[] = {1, 1, 1, 2, 3, 5};
  Shape shape{random.pick(kOuter), random.pick(kOuter), random_extent(random)};
  if (random.chance(0.2)) std::swap(shape.middle, shape.inner);
  if (random.chance(0.02)) shape.outer = 0;
  return shape;
}

// Contiguous along the inner loop; rows and planes may be padded.
inline Strides random_output_strides(Random& random, const Shape& shape) {
  Strides strides;
  strides.inner = 1;
  strides.middle = shape.inner + (random.chance(0.4) ? random.integer(1, 9) : 0);
  strides.outer = shape.middle * strides.middle + (random.chance(0.3) ? random.integer(1, 9) : 0);
  return strides;
}

// As an output, but any loop may be broadcast.
inline Strides random_input_strides(Random& random, const Shape& shape) {
  Strides strides = random_output_strides(random, shape);
  if (random.chance(0.25)) strides.inner = 0;
  if (random.chance(0.25)) strides.middle = 0;
  if (random.chance(0.25)) strides.outer = 0;
  if (strides.inner == 0 && random.chance(0.5)) strides.middle = strides.middle != 0 ? 1 : 0;
  return strides;
}

template <class T>
T random_value(Random& random) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return random.chance(0.5) ? random.chance(0.5) : static_cast<T>(random.bits());
  } else if constexpr (std::is_floating_point_v<T>) {
    using Limits = std::numeric_limits<T>;
    constexpr T kSpecial[] = {0,
                              T(-0.0),
                              1,
                              -1,
                              Limits::infinity(),
                              -Limits::infinity(),
                              Limits::quiet_NaN(),
                              Limits::max(),
                              Limits::lowest(),
                              Limits::min(),
                              Limits::denorm_min(),
                              T(-1e-40),
                              T(0.5),
                              T(1.5),
                              T(2.5),
                              T(-0.5)};
    if (random.chance(0.15)) return random.pick(kSpecial);
    if (random.chance(0.5)) return static_cast<T>(random.real(-3, 3));
    return static_cast<T>(random.real(-1, 1) * std::exp2(random.real(-30, 30)));
  } else {
    constexpr T kSpecial[] = {
        0, 1, -1, 2, 31, 33, 64, std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
    if (random.chance(0.2)) return random.pick(kSpecial);
    if (random.chance(0.5)) return static_cast<T>(random.integer(-20, 20));
    return static_cast<T>(random.bits());
  }
}

// Elements in guarded memory, laid out by strides.
template <class T>
class Array {
 public:
  Array(const Shape& shape, const Strides& strides)
      : strides_(strides),
        count_(strides.span(shape)),
        memory_(static_cast<size_t>(count_) * sizeof(T)) {}

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  int64_t count() const { return count_; }
  const Strides& strides() const { return strides_; }
  Place place() const { return {memory_.data(), strides_}; }
  T& at(int64_t o, int64_t m, int64_t i) const { return data()[strides_.at(o, m, i)]; }
  std::vector<T> copy() const { return std::vector<T>(data(), data() + count_); }

  template <class Value>
  void fill(Value value) {
    for (int64_t i = 0; i < count_; i++) data()[i] = value();
  }
  void fill_random(Random& random) {
    fill([&] { return random_value<T>(random); });
  }

 private:
  Strides strides_;
  int64_t count_;
  Guarded memory_;
};

template <class Body>
void for_each_index(const Shape& shape, Body body) {
  for (int64_t o = 0; o < shape.outer; o++)
    for (int64_t m = 0; m < shape.middle; m++)
      for (int64_t i = 0; i < shape.inner; i++) body(o, m, i);
}

inline std::string describe(const Shape& shape, std::initializer_list<Strides> strides) {
  std::string text = "extents " + std::to_string(shape.outer) + "x" + std::to_string(shape.middle) +
                     "x" + std::to_string(shape.inner);
  for (const Strides& s : strides) {
    text += " [" + std::to_string(s.outer) + "," + std::to_string(s.middle) + "," +
            std::to_string(s.inner) + "]";
  }
  return text;
}

// Calls body(element) with a value of the register dtype's C++ type.
template <class Body>
void with_register_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::f32: return body(float{});
    case DType::f64: return body(double{});
    case DType::i32: return body(int32_t{});
    case DType::i64: return body(int64_t{});
    case DType::i8: return body(int8_t{});
    default: return body(uint8_t{});
  }
}

struct Row {
  const char* name;
  Family family;
  Form form;
  uint16_t dtypes;
};
inline constexpr Row kRows[] = {
#define DVM_INSN(name, queue, form, dtypes, meaning) \
  {#name, Family::name, Form::form, dtype_list::dtypes},
#include "vm/isa.def"
#undef DVM_INSN
};

// Calls body(row, dtype) for every instruction but those in 16 bits, which the host's units lack.
template <class Body>
void for_each_instruction(Body body) {
  for (const Row& row : kRows) {
    for (int d = 0; d < kDTypes; d++) {
      const auto dtype = static_cast<DType>(d);
      if (((row.dtypes >> d) & 1) && !is_in_halves(row.family, dtype)) body(row, dtype);
    }
  }
}

}  // namespace dvm::test
