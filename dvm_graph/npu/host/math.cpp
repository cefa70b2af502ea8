// The vector unit's math functions: those of functions.h for f32, libm per element for f64.
#include "npu/host/functions.h"
#include "npu/host/rows.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

template <Family>
struct Op;  // left undefined for a family without an implementation

#define DVM_MATH(name, lanes, libm)                            \
  template <>                                                  \
  struct Op<Family::name> {                                    \
    template <class V>                                         \
    DVM_INLINE static V vector(V x)                            \
      requires std::is_same_v<V, F>                            \
    {                                                          \
      return lanes(x);                                         \
    }                                                          \
    DVM_INLINE static double scalar(double x) { return libm; } \
  };
DVM_MATH(v_exp, exp_lanes, __builtin_exp(x))
DVM_MATH(v_log, log_lanes, __builtin_log(x))
DVM_MATH(v_log1p, log1p_lanes, __builtin_log1p(x))
DVM_MATH(v_sin, sin_lanes, __builtin_sin(x))
DVM_MATH(v_cos, cos_lanes, __builtin_cos(x))
DVM_MATH(v_tan, tan_lanes, __builtin_tan(x))
DVM_MATH(v_asin, asin_lanes, __builtin_asin(x))
DVM_MATH(v_acos, acos_lanes, __builtin_acos(x))
DVM_MATH(v_atan, atan_lanes, __builtin_atan(x))
DVM_MATH(v_sinh, sinh_lanes, __builtin_sinh(x))
DVM_MATH(v_cosh, cosh_lanes, __builtin_cosh(x))
DVM_MATH(v_asinh, asinh_lanes, __builtin_asinh(x))
DVM_MATH(v_acosh, acosh_lanes, __builtin_acosh(x))
DVM_MATH(v_atanh, atanh_lanes, __builtin_atanh(x))
DVM_MATH(v_erf, erf_lanes, __builtin_erf(x))
DVM_MATH(v_tanh, tanh_lanes, __builtin_tanh(x))
DVM_MATH(v_sigmoid, sigmoid_lanes,
         x < 0 ? __builtin_exp(x) / (1 + __builtin_exp(x)) : 1 / (1 + __builtin_exp(-x)))
#undef DVM_MATH

template <>
struct Op<Family::v_pow> {
  template <class V>
  DVM_INLINE static V vector(V a, V b)
    requires std::is_same_v<V, F>
  {
    return pow_lanes(a, b);
  }
  DVM_INLINE static double scalar(double a, double b) { return __builtin_pow(a, b); }
  // Wraps. A negative exponent gives the reciprocal's integer part: 0 unless the base is 1 or -1.
  template <class T>
  DVM_INLINE static T scalar(T base, T exponent) {
    using U = std::make_unsigned_t<T>;
    if (exponent < 0) {
      if (base == 1) return 1;
      return base == -1 ? ((exponent & 1) != 0 ? -1 : 1) : 0;
    }
    U result = 1, power = static_cast<U>(base);
    for (U left = static_cast<U>(exponent); left != 0; left >>= 1, power *= power) {
      if ((left & 1) != 0) result *= power;
    }
    return static_cast<T>(result);
  }
};

struct Math {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::math;
  }
  template <Family Name, Form Form_, DType D>
  static constexpr auto handler() {
    if constexpr (Form_ == Form::unary)
      return &unary_handler<Op<Name>, ElementType<D>>;
    else
      return &binary_handler<Op<Name>, ElementType<D>>;
  }
};

}  // namespace

void fill_math(Handler* handlers) { fill_handlers<Math>(handlers); }

}  // namespace dvm::DVM_LEVEL
