// What a result ends as in passing: itself between two numbers or, gated, itself times a line of it
// that is kept between them, as hard swishes and leaky rectifiers are.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/normalise.h"

namespace dvm {

// The number that an immediate of this dtype, f32 or f64, has.
inline double real_of(DType dtype, uint64_t bits) {
  return dtype == DType::f64 ? std::bit_cast<double>(bits)
                             : std::bit_cast<float>(static_cast<uint32_t>(bits));
}

// Operations with numbers that follow each other. False: the number is none for this operation, and
// nothing has changed. NaN passes all of them.
class Line {
 public:
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double slope = 1, offset = 0;

  bool is_bounded() const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return low > -kInfinity || high < kInfinity;
  }
  // `right`: the number is the second of the operands.
  bool follow(PlanOp op, double number, bool right) {
    switch (op) {
      case PlanOp::max_: return bound(std::max<double>, number);
      case PlanOp::min_: return bound(std::min<double>, number);
      case PlanOp::add_: return add(number);
      case PlanOp::mul_: return scale(number);
      case PlanOp::div_: return right && scale(1 / number);
      default: return false;
    }
  }
  // Whether instructions of a dtype can have it.
  bool fits(DType dtype) const {
    const auto rounded = [dtype](double number) {
      return dtype == DType::f64 ? number : double{static_cast<float>(number)};
    };
    return rounded(slope) != 0 && std::isfinite(rounded(slope)) && std::isfinite(rounded(offset));
  }
  // That of max(x, factor * x): 1 for positive x, and the factor for others.
  static Line leaky(DType dtype, double factor) {
    Line line;
    line.low = factor;
    line.high = 1;
    line.slope = dtype == DType::f64 ? std::numeric_limits<double>::max()
                                     : double{std::numeric_limits<float>::max()};
    return line;
  }

 private:
  bool bound(const double& (*keep)(const double&, const double&), double number) {
    if (std::isnan(number)) return false;
    low = keep(low, number);
    high = keep(high, number);
    return true;
  }
  bool add(double number) {
    if (!std::isfinite(number)) return false;
    for (double* const at : {&low, &high, &offset}) *at += number;
    return true;
  }
  bool scale(double number) {
    if (!std::isfinite(number) || number == 0) return false;
    for (double* const at : {&low, &high, &slope, &offset}) *at *= number;
    if (number < 0) std::swap(low, high);
    return true;
  }
};

// As the words of an instruction.
struct Ending {
  Line line;
  bool gates = false;

  void write(DType dtype, uint64_t* words) const {
    const double slope = gates ? line.slope : 0, offset = gates ? line.offset : 0;
    for (const double number : {line.low, line.high, slope, offset})
      *words++ = immediate_bits(dtype, number, 0);
  }
  // The operation that leads from a result and a line of it to the result gated. False: another.
  bool gate(DType dtype, PlanOp op, const Line& by) {
    const bool part = !by.is_bounded() && by.offset == 0 && by.slope > 0 && by.slope <= 1;
    if (op != PlanOp::mul_ && !(op == PlanOp::max_ && part)) return false;
    line = op == PlanOp::mul_ ? by : Line::leaky(dtype, by.slope);
    gates = line.fits(dtype);
    return gates;
  }
  // Another operation with a number: what is not gated is bounded, what is gated scaled. False: it
  // is another one.
  bool follow(DType dtype, PlanOp op, double number, bool right) {
    const bool bounds = op == PlanOp::max_ || op == PlanOp::min_;
    const bool scales = op == PlanOp::mul_ || op == PlanOp::div_;
    Line next = line;
    if (!(gates ? scales : bounds) || !next.follow(op, number, right)) return false;
    if (!next.fits(dtype)) return false;
    line = next;
    return true;
  }
};

}  // namespace dvm
