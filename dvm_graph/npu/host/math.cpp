// The vector unit's math functions. f32: exp, log, log1p, sin, cos, erf, tanh and sigmoid are the
// polynomials of functions.h; the rare functions and all of f64 call libm per element.
#include "npu/host/functions.h"
#include "npu/host/rows.h"
#include "npu/host/units.h"

// libm has C linkage, so these calls bring no inline code into the level (see simd.h).
extern "C" {
float powf(float, float);
double pow(double, double);
}

namespace dvm::DVM_LEVEL {
namespace {

template <Family>
struct Op;  // left undefined for a family without an implementation

#define DVM_SIMD_MATH(name, lanes, libm)                       \
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
DVM_SIMD_MATH(v_exp, exp_lanes, __builtin_exp(x))
DVM_SIMD_MATH(v_log, log_lanes, __builtin_log(x))
DVM_SIMD_MATH(v_log1p, log1p_lanes, __builtin_log1p(x))
DVM_SIMD_MATH(v_sin, sin_lanes, __builtin_sin(x))
DVM_SIMD_MATH(v_cos, cos_lanes, __builtin_cos(x))
DVM_SIMD_MATH(v_erf, erf_lanes, __builtin_erf(x))
DVM_SIMD_MATH(v_tanh, tanh_lanes, __builtin_tanh(x))
DVM_SIMD_MATH(v_sigmoid, sigmoid_lanes,
              x < 0 ? __builtin_exp(x) / (1 + __builtin_exp(x)) : 1 / (1 + __builtin_exp(-x)))
#undef DVM_SIMD_MATH

#define DVM_LIBM(name, function)                                                   \
  template <>                                                                      \
  struct Op<Family::name> {                                                        \
    DVM_INLINE static float scalar(float x) { return __builtin_##function##f(x); } \
    DVM_INLINE static double scalar(double x) { return __builtin_##function(x); }  \
  };
DVM_LIBM(v_tan, tan)
DVM_LIBM(v_asin, asin)
DVM_LIBM(v_acos, acos)
DVM_LIBM(v_atan, atan)
DVM_LIBM(v_sinh, sinh)
DVM_LIBM(v_cosh, cosh)
DVM_LIBM(v_asinh, asinh)
DVM_LIBM(v_acosh, acosh)
DVM_LIBM(v_atanh, atanh)
#undef DVM_LIBM

template <>
struct Op<Family::v_pow> {
  DVM_INLINE static float scalar(float a, float b) { return powf(a, b); }
  DVM_INLINE static double scalar(double a, double b) { return pow(a, b); }
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
