// The vector unit's moves and arithmetic: unary and binary instructions that are not math
// functions.
#include <type_traits>

#include "npu/host/lanes.h"
#include "npu/host/units.h"
#include "npu/host/value_rows.h"

namespace dvm::DVM_LEVEL {
namespace {

template <class T>
constexpr bool kFloating = std::is_floating_point_v<T>;
template <class V>
constexpr bool kFloatVec = kFloating<Element<V>>;

// Integer arithmetic wraps; on vectors of unsigned elements that is defined behaviour.
template <class V>
DVM_INLINE auto wrapping(V v) {
  if constexpr (kFloatVec<V>)
    return v;
  else
    return bits_as<Vec<std::make_unsigned_t<Element<V>>, kLanesOf<V>>>(v);
}

template <class V>
DVM_INLINE V sign_bits() {
  return bits_as<V>(splat<IntegerVec<V>>(std::is_same_v<Element<V>, float>
                                             ? static_cast<Element<IntegerVec<V>>>(INT32_MIN)
                                             : static_cast<Element<IntegerVec<V>>>(INT64_MIN)));
}

template <Family F>
struct Op;  // left undefined for a family without an implementation

struct Identity {
  template <class V>
  DVM_INLINE static V vector(V x) {
    return x;
  }
};
template <>
struct Op<Family::v_copy> : Identity {};
template <>
struct Op<Family::v_broadcast> : Identity {};

template <>
struct Op<Family::v_abs> {
  template <class V>
  DVM_INLINE static V vector(V x) {
    if constexpr (kFloatVec<V>) {
      return bits_as<V>(bits_as<IntegerVec<V>>(x) & ~bits_as<IntegerVec<V>>(sign_bits<V>()));
    } else {
      return x < 0 ? bits_as<V>(-wrapping(x)) : x;
    }
  }
};
template <>
struct Op<Family::v_neg> {
  template <class V>
  DVM_INLINE static V vector(V x) {
    return bits_as<V>(-wrapping(x));
  }
};
template <>
struct Op<Family::v_sign> {
  template <class V>
  DVM_INLINE static V vector(V x) {
    using T = Element<V>;
    const V one = splat<V>(T{1});
    const V magnitude = x > V{} ? one : x + V{};  // NaN stays what it is, -0 becomes 0
    return magnitude < V{} ? bits_as<V>(-wrapping(one)) : magnitude;
  }
};

// Auto-vectorised: the compilers know these as instructions, the vector extensions do not.
#define DVM_SCALAR_UNARY(name, f32_expression, f64_expression)           \
  template <>                                                            \
  struct Op<Family::name> {                                              \
    DVM_INLINE static float scalar(float x) { return f32_expression; }   \
    DVM_INLINE static double scalar(double x) { return f64_expression; } \
  };
DVM_SCALAR_UNARY(v_sqrt, __builtin_sqrtf(x), __builtin_sqrt(x))
DVM_SCALAR_UNARY(v_rsqrt, 1.0f / __builtin_sqrtf(x), 1.0 / __builtin_sqrt(x))
DVM_SCALAR_UNARY(v_floor, __builtin_floorf(x), __builtin_floor(x))
DVM_SCALAR_UNARY(v_ceil, __builtin_ceilf(x), __builtin_ceil(x))
DVM_SCALAR_UNARY(v_round, __builtin_rintf(x), __builtin_rint(x))
DVM_SCALAR_UNARY(v_trunc, __builtin_truncf(x), __builtin_trunc(x))
#undef DVM_SCALAR_UNARY

template <>
struct Op<Family::v_reciprocal> {
  template <class V>
  DVM_INLINE static V vector(V x) {
    return splat<V>(1) / x;
  }
};
template <>
struct Op<Family::v_logical_not> {
  template <class V>
  DVM_INLINE static V vector(V x) {
    return (x == V{} ? splat<V>(1) : V{});
  }
};
template <>
struct Op<Family::v_bitwise_not> {
  template <class V>
  DVM_INLINE static V vector(V x) {
    return ~x;
  }
};

#define DVM_VECTOR_BINARY(name, expression) \
  template <>                               \
  struct Op<Family::name> {                 \
    template <class V>                      \
    DVM_INLINE static V vector(V a, V b) {  \
      return expression;                    \
    }                                       \
  };
DVM_VECTOR_BINARY(v_add, bits_as<V>(wrapping(a) + wrapping(b)))
DVM_VECTOR_BINARY(v_sub, bits_as<V>(wrapping(a) - wrapping(b)))
DVM_VECTOR_BINARY(v_mul, bits_as<V>(wrapping(a) * wrapping(b)))
DVM_VECTOR_BINARY(v_bitwise_and, a& b)
DVM_VECTOR_BINARY(v_bitwise_or, a | b)
DVM_VECTOR_BINARY(v_bitwise_xor, a ^ b)
#undef DVM_VECTOR_BINARY

// A NaN on the left is kept by the second select, one on the right by the failing comparison.
template <>
struct Op<Family::v_min> {
  template <class V>
  DVM_INLINE static V vector(V a, V b) {
    const V chosen = lesser_lanes(a, b);
    if constexpr (kFloatVec<V>)
      return a != a ? a : chosen;
    else
      return chosen;
  }
};
template <>
struct Op<Family::v_max> {
  template <class V>
  DVM_INLINE static V vector(V a, V b) {
    const V chosen = greater_lanes(a, b);
    if constexpr (kFloatVec<V>)
      return a != a ? a : chosen;
    else
      return chosen;
  }
};

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Quotients of integers are rounded to 0, and 0 by 0. In f64 they are never rounded up to an
// integer where operands are below 2^51, as are all of i32.
DVM_INLINE I quotient_lanes(I a, I b) {
  const auto divide = [](auto x, auto y) DVM_LAMBDA_INLINE {
    return convert<int32_t>(convert<double>(x) / convert<double>(y));
  };
  const I quotient = join(divide(low_half(a), low_half(b)), divide(high_half(a), high_half(b)));
  const I wrapped = b == -1 ? bits_as<I>(-bits_as<U>(a)) : quotient;
  return b == 0 ? I{} : wrapped;
}
DVM_INLINE I fmod_lanes(I a, I b) {
  const U product = bits_as<U>(quotient_lanes(a, b)) * bits_as<U>(b);
  return b == 0 ? I{} : bits_as<I>(bits_as<U>(a) - product);
}

using L = Full<int64_t>;
constexpr int64_t kWideLimit = int64_t{1} << 51;

DVM_INLINE bool any_beyond_limit(L a, L b) {
  using Bits = Full<uint64_t>;
  const auto above = [](L x) DVM_LAMBDA_INLINE { return bits_as<Bits>(x) + kWideLimit; };
  return any(bits_as<I>(((above(a) | above(b)) >> 52) != 0));
}
// Integers below the limit; levels without conversions of i64 have these.
DVM_INLINE D to_wide(L x) { return bits_as<D>(x + bits_as<L>(splat<D>(kRoundWide))) - kRoundWide; }
DVM_INLINE L from_wide(D x) {
  return bits_as<L>(x + kRoundWide) - bits_as<L>(splat<D>(kRoundWide));
}
DVM_INLINE D quotient_wide(D a, D b) {
  const D quotient = a / b, nearest = (quotient + kRoundWide) - kRoundWide;
  const D below = nearest > quotient ? nearest - 1.0 : nearest;
  const D above = nearest < quotient ? nearest + 1.0 : nearest;
  return quotient < D{} ? above : below;
}

DVM_INLINE L quotient_lanes(L a, L b) {
  if (any_beyond_limit(a, b)) [[unlikely]]
    return by_element(
        [](int64_t x, int64_t y) {
          if (y == 0) return int64_t{0};
          return y == -1 ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x / y;
        },
        a, b);
  const L quotient = from_wide(quotient_wide(to_wide(a), to_wide(b)));
  return b == 0 ? L{} : quotient;
}
DVM_INLINE L fmod_lanes(L a, L b) {
  if (any_beyond_limit(a, b)) [[unlikely]]
    return by_element([](int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }, a, b);
  const D x = to_wide(a), y = to_wide(b);
  const L remainder = from_wide(x - quotient_wide(x, y) * y);
  return b == 0 ? L{} : remainder;
}

// a - n b with the integer n next to a / b, in f64: up to the limit, n b has no more bits than that
// holds. By 0 and of what is infinite the remainder is NaN, as n b is.
DVM_INLINE F fmod_lanes(F a, F b) {
  constexpr float kQuotientLimit = 0x1p29f;
  const F dividend = absolute(a), divisor = absolute(b), quotient = dividend / divisor;
  if (any((quotient >= kQuotientLimit) & (divisor != F{}) & (dividend < __builtin_inff())))
      [[unlikely]]
    return by_element([](float x, float y) { return __builtin_fmodf(x, y); }, a, b);
  const F remainder = in_wide_halves(
      [](D x, D y) DVM_LAMBDA_INLINE {
        const D rest = x - ((x / y + kRoundWide) - kRoundWide) * y;
        return rest < D{} ? rest + y : rest;
      },
      dividend, divisor);
  return with_sign_of(dividend < divisor ? dividend : remainder, a);
}

template <>
struct Op<Family::v_div> {
  template <class V>
  DVM_INLINE static V vector(V a, V b) {
    if constexpr (kFloatVec<V>)
      return a / b;
    else
      return quotient_lanes(a, b);
  }
};
template <class V>  // f64 takes libm's
constexpr bool kHasFmodLanes = !std::is_same_v<V, D>;
template <>
struct Op<Family::v_fmod> {
  template <class V>
  DVM_INLINE static V vector(V a, V b)
    requires kHasFmodLanes<V>
  {
    return fmod_lanes(a, b);
  }
  DVM_INLINE static double scalar(double a, double b) { return __builtin_fmod(a, b); }
};
// The remainder has the sign of the divisor, also where it is 0.
template <>
struct Op<Family::v_mod> {
  template <class V>
  DVM_INLINE static V vector(V a, V b)
    requires kHasFmodLanes<V>
  {
    const V remainder = fmod_lanes(a, b);
    const auto apart = (remainder < V{}) ^ (b < V{});
    const V shifted = apart ? bits_as<V>(wrapping(remainder) + wrapping(b)) : remainder;
    V zero{};
    if constexpr (kFloatVec<V>) zero = with_sign_of(zero, b);
    return remainder == V{} ? zero : shifted;
  }
  DVM_INLINE static double scalar(double a, double b) {
    const double remainder = __builtin_fmod(a, b);
    if (remainder == 0) return b < 0 ? -0.0 : 0.0;
    return (remainder < 0) != (b < 0) ? remainder + b : remainder;
  }
};

// Shift counts outside the width shift everything out.
template <>
struct Op<Family::v_shift_left> {
  template <class T>
  DVM_INLINE static T scalar(T a, T b) {
    constexpr Unsigned<T> kBits = sizeof(T) * 8;
    const auto count = static_cast<Unsigned<T>>(b);
    return count < kBits ? static_cast<T>(static_cast<Unsigned<T>>(a) << count) : 0;
  }
};
template <>
struct Op<Family::v_shift_right> {
  template <class T>
  DVM_INLINE static T scalar(T a, T b) {
    constexpr Unsigned<T> kBits = sizeof(T) * 8;
    const auto count = static_cast<Unsigned<T>>(b);
    return a >> (count < kBits ? count : kBits - 1);
  }
};

// Lanes [First, First + L) of a vector's elements, each `Times` times in a row.
template <int Times, int First, class V, int... I>
DVM_INLINE V repeated_lanes(V v, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(v, v, ((First + I) / Times)...);
}

// Each of `count` elements `Times` times in a row.
template <int Times, class T>
void repeat_elements(T* to, const T* from, int64_t count) {
  constexpr int L = kLanes<T>;
  int64_t i = 0;
  for (; i + L <= count; i += L, to += L * Times) {
    const auto v = load<Full<T>>(from + i);
    [&]<int... Part>(std::integer_sequence<int, Part...>) DVM_LAMBDA_INLINE {
      constexpr auto kLane = std::make_integer_sequence<int, L>{};
      (store(to + Part * L, repeated_lanes<Times, Part * L>(v, kLane)), ...);
    }(std::make_integer_sequence<int, Times>{});
  }
  for (; i < count; i++)
    for (int t = 0; t < Times; t++) *to++ = from[i];
}

// A row shorter than a vector, some times in a row: whole vectors are written, of which the next
// ones overwrite what is no whole repeat.
template <class T>
class ShortRow {
  static constexpr int L = kLanes<T>;
  static constexpr bool kShuffles = kShufflesAtOnce && sizeof(T) >= 4;
  using Lane = std::conditional_t<sizeof(T) == 8, double, float>;

 public:
  explicit ShortRow(int64_t elements) : elements_(elements), held_(elements) {
    if constexpr (kShuffles) {
      if (2 * elements > L) return;
      held_ = L / elements * elements;
      int from = 0;
      for (int i = 0; i < L; i++, from++) {
        if (from == elements) from = 0;
        lanes_[i] = from;
      }
    }
  }

  DVM_INLINE void repeat(T* to, const T* row, int64_t times) const {
    auto v = load_partial<Full<T>>(row, elements_);
    if constexpr (kShuffles) {
      if (held_ != elements_) v = bits_as<Full<T>>(shuffled(bits_as<Full<Lane>>(v), lanes_));
    }
    const int64_t all = elements_ * times;
    int64_t i = 0;
    for (; i + L <= all; i += held_) store(to + i, v);
    for (; i < all; i += held_) store_partial(to + i, v, lesser(held_, all - i));
  }

 private:
  const int64_t elements_;
  int64_t held_;  // of a vector: whole repeats
  IntegerVec<Full<Lane>> lanes_{};
};

// Rows shorter than a vector, of one value each or repeated, which a row function would take longer
// for.
template <class T>
void broadcast_handler(Core& core, const uint64_t* words) {
  Extents e = extents_of(core, words);
  if (e.empty()) return;
  Tile<T> out = tile_at<T>(core, operand_words(words, 0));
  Tile<const T> in = tile_at<const T>(core, operand_words(words, 1));
  merge_loops(e, out, in);
  const bool repeats =
      in.inner == 1 && in.middle == 0 && out.inner == 1 && out.middle == e.inner && e.middle > 1;
  if (repeats && e.inner < kLanes<T>) {
    const ShortRow<T> row(e.inner);
    for (int64_t o = 0; o < e.outer; o++)
      row.repeat(out.at + o * out.outer, in.at + o * in.outer, e.middle);
    return;
  }
  if (e.inner >= kLanes<T> && in.inner == 0 && out.inner == 1 && !streams(words)) {
    for_rows(e, [n = e.inner](T* to, const T* from) { fill_row(to, n, *from); }, out, in);
    return;
  }
  if (e.inner >= kLanes<T> || in.inner != 0 || out.inner != 1)
    return unary_handler<Op<Family::v_broadcast>, T>(core, words);
  for (int64_t o = 0; o < e.outer; o++) {
    T* to = out.at + o * out.outer;
    const T* from = in.at + o * in.outer;
    const bool in_one_row = in.middle == 1 && out.middle == e.inner;
    if (in_one_row && e.inner == 2) {
      repeat_elements<2>(to, from, e.middle);
      continue;
    }
    if (in_one_row && e.inner == 4) {
      repeat_elements<4>(to, from, e.middle);
      continue;
    }
    for (int64_t m = 0; m < e.middle; m++, to += out.middle, from += in.middle)
      for (int64_t i = 0; i < e.inner; i++) to[i] = *from;
  }
}

struct Arithmetic {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::arithmetic;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    if constexpr (F == Family::v_broadcast)
      return &broadcast_handler<ElementType<D>>;
    else if constexpr (Form_ == Form::unary)
      return &unary_handler<Op<F>, ElementType<D>>;
    else if constexpr (requires(Full<ElementType<D>> v) { Op<F>::vector(v, v); })
      return &value_rows_handler<Op<F>, ElementType<D>>;
    else
      return &binary_handler<Op<F>, ElementType<D>>;
  }
};

}  // namespace

void fill_arithmetic(Handler* handlers) { fill_handlers<Arithmetic>(handlers); }

}  // namespace dvm::DVM_LEVEL
