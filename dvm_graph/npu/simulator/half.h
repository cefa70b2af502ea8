// Storage dtypes of what the cube unit multiplies and stores, as floats and back.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/half.h"

namespace dvm {

template <DType D>
struct CubeElement;
template <>
struct CubeElement<DType::f32> {
  using type = float;
  static float wide(float value) { return value; }
  static float narrow(float value) { return value; }
};
template <>
struct CubeElement<DType::f16> {
  using type = uint16_t;
  static float wide(uint16_t value) { return float_of_half(value); }
  static uint16_t narrow(float value) { return half_of_float(value); }
};
template <>
struct CubeElement<DType::bf16> {
  using type = uint16_t;
  static float wide(uint16_t value) { return float_of_bfloat(value); }
  static uint16_t narrow(float value) { return bfloat_of_float(value); }
};

}  // namespace dvm
