// What a result ends as in passing: itself between two numbers or, gated, itself times a line of it
// that is kept between them, as hard swishes and leaky rectifiers are.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>

#include "kernels/normalise.h"

namespace dvm {

// The number that an immediate of this dtype, f32 or f64, has.
inline double real_of(DType dtype, uint64_t bits) {
  return dtype == DType::f64 ? std::bit_cast<double>(bits)
                             : std::bit_cast<float>(static_cast<uint32_t>(bits));
}

// Operations with numbers that follow each other: a line, and what it is kept between. NaN passes
// all of them.
class Line {
 public:
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double slope = 1, offset = 0;

  bool is_bounded() const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return low > -kInfinity || high < kInfinity;
  }
  bool is_closed() const { return std::isfinite(low) && std::isfinite(high); }
  // `right`: the number is the second of the operands. False: they make no line, and nothing has
  // changed. A number is added once, and one multiplied by before there are bounds: two may be
  // there for what the first one rounds, or where it overflows.
  bool follow(PlanOp op, double number, bool right) {
    switch (op) {
      case PlanOp::max_: return bound(std::max<double>, number);
      case PlanOp::min_: return bound(std::min<double>, number);
      case PlanOp::add_: return offset == 0 && add(number);
      case PlanOp::mul_: return may_scale() && scale(number);
      case PlanOp::div_: return right && may_scale() && scale(1 / number);
      default: return false;
    }
  }
  // Whether the numbers are as good in a dtype: none vanishes or loses bits there.
  bool fits(DType dtype) const {
    const bool wide = dtype == DType::f64;
    const double least =
        wide ? std::numeric_limits<double>::min() : double{std::numeric_limits<float>::min()};
    const double most =
        wide ? std::numeric_limits<double>::max() : double{std::numeric_limits<float>::max()};
    const auto normal = [=](double number) {
      return std::abs(number) >= least && std::abs(number) <= most;
    };
    const auto bounds = [=](double number) {
      return number == 0 || std::isinf(number) || normal(number);
    };
    return normal(slope) && (offset == 0 || normal(offset)) && bounds(low) && bounds(high);
  }
  // That of max(x, factor * x): 1 for x above 0 that are not denormal, and the factor below 0.
  static Line leaky(DType dtype, double factor) {
    Line line;
    line.low = factor;
    line.high = 1;
    line.slope = 1 / (dtype == DType::f64 ? std::numeric_limits<double>::min()
                                          : double{std::numeric_limits<float>::min()});
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
  bool may_scale() const { return slope == 1 || is_closed(); }
  bool scale(double number) {
    if (!std::isfinite(number) || number == 0) return false;
    for (double* const at : {&low, &high, &slope, &offset}) *at *= number;
    if (number < 0) std::swap(low, high);
    return true;
  }
};

class Ending {
 public:
  // As words of an instruction: low, high, slope and offset, a slope of 0 where nothing is gated.
  template <size_t Words>
  void write(DType dtype, uint64_t (&words)[Words]) const {
    const double numbers[] = {line_.low, line_.high, gates_ ? line_.slope : 0,
                              gates_ ? line_.offset : 0};
    static_assert(Words >= std::size(numbers));
    std::ranges::transform(numbers, words,
                           [&](double number) { return immediate_bits(dtype, number, 0); });
  }

  // Goes on to what is part of it: `walk` to an operation that reads what it is at. It is copied,
  // and has
  //
  //   next_with_number(take)  to the one that alone reads it, besides a number, if take(operation,
  //                           number, whether that is the second operand)
  //   fork()                  the next one may now be one of two; false: it is not, for sure
  //   join(operation)         to the other one of them, which reads what has been come to as well
  template <class Walk>
  void follow(Walk& walk, DType dtype) {
    for (Walk more = walk; follow_number(more, dtype) || follow_gate(more = walk, dtype);)
      walk = more;
  }

 private:
  // What is not gated is bounded, what is gated by no more than a number scaled.
  template <class Walk>
  bool follow_number(Walk& walk, DType dtype) {
    return walk.next_with_number([&](PlanOp op, double number, bool right) {
      const bool bounds = op == PlanOp::max_ || op == PlanOp::min_;
      const bool scales = line_.is_closed() && (op == PlanOp::mul_ || op == PlanOp::div_);
      Line next = line_;
      if (!(gates_ ? scales : bounds) || !next.follow(op, number, right)) return false;
      if (!next.fits(dtype)) return false;
      line_ = next;
      return true;
    });
  }

  // The result times a line of itself, or the greater of it and a part of it.
  template <class Walk>
  bool follow_gate(Walk& walk, DType dtype) {
    if (gates_ || line_.is_bounded() || !walk.fork()) return false;
    Line line;
    const auto take = [&line](PlanOp op, double number, bool right) {
      return line.follow(op, number, right);
    };
    for (Walk more = walk; more.next_with_number(take);) walk = more;
    if (!walk.join(PlanOp::mul_)) {
      const bool part = !line.is_bounded() && line.offset == 0 && line.slope > 0 && line.slope <= 1;
      if (!part || !walk.join(PlanOp::max_)) return false;
      line = Line::leaky(dtype, line.slope);
    }
    if (!line.fits(dtype)) return false;
    line_ = line;
    gates_ = true;
    return true;
  }

  Line line_;
  bool gates_ = false;
};

}  // namespace dvm
