// Numbers that results are kept between in passing.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/normalise.h"

namespace dvm {

// The number that an immediate of this dtype, f32 or f64, has.
inline double real_of(DType dtype, uint64_t bits) {
  return dtype == DType::f64 ? std::bit_cast<double>(bits)
                             : std::bit_cast<float>(static_cast<uint32_t>(bits));
}

// A maximum or minimum by a number follows another: NaN passes all of them.
class Bounds {
 public:
  // False: such a number bounds nothing.
  bool keep(bool above, double number) {
    if (std::isnan(number)) return false;
    low_ = above ? std::max(low_, number) : std::min(low_, number);
    high_ = above ? std::max(high_, number) : std::min(high_, number);
    return true;
  }
  // As words of an instruction.
  void write(DType dtype, uint64_t* words) const {
    words[0] = immediate_bits(dtype, low_, 0);
    words[1] = immediate_bits(dtype, high_, 0);
  }

 private:
  double low_ = -std::numeric_limits<double>::infinity();
  double high_ = std::numeric_limits<double>::infinity();
};

}  // namespace dvm
